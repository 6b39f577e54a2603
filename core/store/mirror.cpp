#include "store/mirror.h"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "zerolab/error.h"

#include "store/checkpoint_folder.h"
#include "store/mirror_files.h"
#include "store/rclone.h"

namespace zerolab {
namespace {

constexpr double kCheckSeconds = 20;
constexpr int kMirrorAttempts = 4;
constexpr int kPauseGrowth = 4;

/// "rclone v1.60.1-DEV" to 1060; 0 if it says something else.
int minor_version(const std::string& text) {
  int major = 0, minor = 0;
  char v = 0, point = 0;
  std::istringstream words(text);
  std::string name;
  words >> name >> v >> major >> point >> minor;
  return words && v == 'v' && point == '.' ? major * 1000 + minor : 0;
}

bool is_no_remote(const std::string& reason) {
  for (const char* known : {"didn't find section", "didn't find backend", "config name", "decrypt"})
    if (reason.find(known) != std::string::npos) return true;
  return false;
}

/// A thread that takes none of the process's signals, which are the main thread's.
template <typename Body>
std::thread start_quiet_thread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread thread(std::move(body));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

}  // namespace

struct Mirror::State {
  enum class Outcome { kDone, kGone, kFailed };

  State(std::string remote_text, const std::filesystem::path& run_path, Tell tell_function,
        std::chrono::milliseconds pause)
      : remote(std::move(remote_text)),
        run(whole_path(run_path)),
        tell(std::move(tell_function)),
        first_pause(pause),
        rclone(stop),
        folder(run) {}

  void work();
  std::optional<int64_t> next();
  void mirror_checkpoint(int64_t step);
  Outcome try_checkpoint(int64_t step, std::string& reason);
  bool mirror_run_files();
  std::string copy_run_files();
  bool pause_after(int attempt);
  bool is_there(int64_t step) const;
  void halt();

  const std::string remote;
  const std::filesystem::path run;
  const Tell tell;
  const std::chrono::milliseconds first_pause;
  StopSwitch stop;
  const Rclone rclone;
  const CheckpointFolder folder;

  std::mutex mutex;  // for what follows
  std::condition_variable changed;
  std::set<int64_t> waiting;
  std::optional<int64_t> current;
  bool finishing = false, finished = false, halting = false;
  std::thread thread;
};

void Mirror::check(const std::string& remote) {
  const std::string where = "key 'checkpoint.mirror': ";
  if (remote.empty())
    throw ConfigError(where + "the text is empty: give \"remote:path\" or a folder.");
  const StopSwitch stop;
  const Rclone rclone(stop);
  const RcloneResult version = rclone.run({"version"}, kCheckSeconds);
  const int number = minor_version(version.output);
  if (!version.ok() && !version.stopped)
    throw ConfigError(where + "rclone does not run: " + version.reason + ".");
  if (number > 0 && number < 1053)
    throw ConfigError(where + "rclone in PATH is version 1." + std::to_string(number % 1000) +
                      ", and 1.53 or newer is needed: install one.");
  const std::string root = remote_root(remote);
  if (root.empty()) return;
  const RcloneResult found = rclone.run({"backend", "features", root}, kCheckSeconds);
  if (!found.ok() && is_no_remote(found.reason))
    throw ConfigError(where + "\"" + root + "\" is no remote that rclone knows (" + found.reason +
                      "): see `rclone listremotes`, make it with `rclone config`, or give a "
                      "folder.");
}

Mirror::Mirror(std::string remote, const std::filesystem::path& run, Tell tell,
               std::chrono::milliseconds first_pause)
    : state_(std::make_unique<State>(std::move(remote), run, std::move(tell), first_pause)) {
  state_->thread = start_quiet_thread([state = state_.get()] { state->work(); });
}

Mirror::~Mirror() {
  state_->halt();
}

void Mirror::push(int64_t step) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting.insert(step);
  state_->changed.notify_all();
}

void Mirror::finish(double seconds) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.finishing = true;
  s.changed.notify_all();
  const std::chrono::duration<double> most(std::clamp(seconds, 0.0, 1e7));
  if (s.changed.wait_for(lock, most, [&] { return s.finished; })) return;
  std::set<int64_t> left = s.waiting;
  if (s.current) left.insert(*s.current);
  lock.unlock();
  s.halt();
  if (s.finished) return;  // in the last moment
  std::string what;
  for (const int64_t step : left)
    if (s.is_there(step)) what += "the checkpoint of step " + std::to_string(step) + ", ";
  std::ostringstream given;
  given << most.count();
  s.tell("The mirror \"" + s.remote + "\" lacks " + what + "the run's last records, because the " +
         given.str() + " s that were left for it are over: copy " + s.run.string() +
         " to a safe place if you need them.");
}

void Mirror::State::halt() {
  {
    const std::lock_guard lock(mutex);
    halting = true;
    stop.stop();
    changed.notify_all();
  }
  if (thread.joinable()) thread.join();
}

void Mirror::State::work() {
  bool ended = true;
  try {
    while (const std::optional<int64_t> step = next()) mirror_checkpoint(*step);
    ended = mirror_run_files();
  } catch (const std::exception& error) {
    tell("The mirror \"" + remote + "\" is given up, and training goes on: " + error.what());
  }
  const std::lock_guard lock(mutex);
  finished = ended;
  waiting.clear();
  current.reset();
  changed.notify_all();
}

/// Waits for a step to mirror; none when there will be no more.
std::optional<int64_t> Mirror::State::next() {
  std::unique_lock lock(mutex);
  current.reset();
  changed.wait(lock, [&] { return halting || finishing || !waiting.empty(); });
  if (halting || waiting.empty()) return {};
  current = *waiting.rbegin();
  waiting.erase(*current);
  return current;
}

bool Mirror::State::is_there(int64_t step) const {
  std::error_code error;
  return std::filesystem::exists(folder.path(step) / kManifestName, error);
}

/// False if there is no time any more.
bool Mirror::State::pause_after(int attempt) {
  auto pause = first_pause;
  for (int i = 1; i < attempt; ++i) pause *= kPauseGrowth;
  std::unique_lock lock(mutex);
  return !changed.wait_for(lock, pause, [&] { return halting; });
}

void Mirror::State::mirror_checkpoint(int64_t step) {
  std::string reason;
  for (int attempt = 1; attempt <= kMirrorAttempts; ++attempt) {
    const Outcome outcome = try_checkpoint(step, reason);
    // A checkpoint that is gone makes any step of it fail, and that is no failure.
    if (outcome != Outcome::kFailed || !is_there(step) || rclone.stopped()) return;
    if (attempt < kMirrorAttempts && !pause_after(attempt)) return;
  }
  if (!is_there(step)) return;
  tell("The checkpoint of step " + std::to_string(step) + " is not in the mirror \"" + remote +
       "\" after " + std::to_string(kMirrorAttempts) +
       " attempts, and training goes on: " + reason + ".");
}

Mirror::State::Outcome Mirror::State::try_checkpoint(int64_t step, std::string& reason) {
  const std::filesystem::path from = folder.path(step);
  const std::string to = join_remote(mirrored_checkpoints(remote, run), from.filename().string());
  const std::set<std::string> files = files_but_manifest(from);
  if (!is_there(step)) return Outcome::kGone;

  // A manifest there is of this checkpoint, or of an earlier one of the same step: then it goes
  // first, so that it never stands beside files that are not its own.
  const bool has_manifest = rclone.list(to, 1, reason).count(kManifestName) > 0;
  if (!reason.empty()) return Outcome::kFailed;
  if (has_manifest) {
    std::set<std::string> all = files;
    all.insert(kManifestName);
    if (rclone.compare(from.string(), to, choose_all(std::move(all))).empty())
      return Outcome::kDone;
    const RcloneResult gone = rclone.run({"deletefile", "--", join_remote(to, kManifestName)});
    if (!gone.ok()) {
      reason = gone.reason;
      return Outcome::kFailed;
    }
  }
  reason = rclone.copy(from.string(), to, choose_all_but_manifest(files));
  if (reason.empty()) reason = copy_run_files();
  if (reason.empty() && !is_there(step)) return Outcome::kGone;
  if (reason.empty()) reason = rclone.copy(from.string(), to, choose_manifest());
  return reason.empty() ? Outcome::kDone : Outcome::kFailed;
}

/// False if it was stopped before it could do or tell.
bool Mirror::State::mirror_run_files() {
  std::string reason;
  for (int attempt = 1; attempt <= kMirrorAttempts; ++attempt) {
    if (rclone.stopped()) return false;
    reason = copy_run_files();
    if (reason.empty()) return true;
    if (attempt < kMirrorAttempts && !pause_after(attempt)) return false;
  }
  if (rclone.stopped()) return false;
  tell("The mirror \"" + remote + "\" lacks the run's last records after " +
       std::to_string(kMirrorAttempts) + " attempts: " + reason + ".");
  return true;
}

/// By way of copies: the journal grows while it is read, and would never equal its mirror.
std::string Mirror::State::copy_run_files() {
  const std::filesystem::path partial = run / kMirrorPartial;
  const std::set<std::string> names = small_files_in(run);
  if (names.empty()) return {};
  remove_quietly(partial);
  std::error_code error;
  std::filesystem::create_directory(partial, error);
  for (const std::string& name : names)
    if (!error) std::filesystem::copy_file(run / name, partial / name, error);
  std::string reason =
      error ? partial.string() + ": cannot be written: " + error.message()
            : rclone.copy(partial.string(), mirrored_run(remote, run), choose_all(names));
  remove_quietly(partial);
  return reason;
}

}  // namespace zerolab
