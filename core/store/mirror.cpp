#include "store/mirror.h"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <limits>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "zerolab/error.h"

#include "store/checkpoint_folder.h"
#include "store/mirror_files.h"
#include "store/mirror_sessions.h"
#include "store/rclone.h"
#include "store/sessions.h"

namespace zerolab {
namespace {

constexpr int kMirrorAttempts = 4;
constexpr int kPauseGrowth = 4;
constexpr auto kGiveUpPoll = std::chrono::milliseconds(250);

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
  bool mirror_checkpoint(int64_t step);
  Outcome try_checkpoint(int64_t step, std::string& reason);
  bool mirror_run_files();
  std::string look();
  std::string take_back(int64_t newest);
  std::string copy_run_files(int64_t newest);
  std::string place_of(int64_t step) const;
  int64_t newest_here(int64_t at_least) const;
  bool pause_after(int attempt);
  bool is_there(int64_t step) const;
  void halt();
  void tell_left(const std::string& why) const;

  const std::string remote;
  const std::filesystem::path run;
  const Tell tell;
  const std::chrono::milliseconds first_pause;
  StopSwitch stop;
  const Rclone rclone;
  const CheckpointFolder folder;

  // What the mirror has, as far as the thread knows.
  bool looked = false;
  std::set<int64_t> complete;    // with a manifest
  std::set<int64_t> superseded;  // of these, what the run does again
  bool has_old_summary = false;  // of an earlier session

  std::mutex mutex;  // for what follows
  std::condition_variable changed;
  std::set<int64_t> waiting;
  bool finishing = false, finished = false, halting = false;
  std::thread thread;
};

Mirror::Mirror(std::string remote, const std::filesystem::path& run, Tell tell,
               std::chrono::milliseconds first_pause)
    : state_(std::make_unique<State>(std::move(remote), run, std::move(tell), first_pause)) {
  state_->thread = start_quiet_thread([state = state_.get()] { state->work(); });
}

Mirror::~Mirror() {
  state_->halt();
  const bool has_told = state_->finishing || state_->finished;
  if (has_told || state_->waiting.empty()) return;
  state_->tell_left("the run ended without waiting for it");
}

void Mirror::push(int64_t step) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting.insert(step);
  state_->changed.notify_all();
}

void Mirror::finish(double seconds, const std::function<bool()>& give_up) {
  using Clock = std::chrono::steady_clock;
  State& s = *state_;
  const std::chrono::duration<double> most(std::clamp(seconds, 0.0, 1e7));
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(most);
  bool given_up = false;
  std::unique_lock lock(s.mutex);
  s.finishing = true;
  s.changed.notify_all();
  while (!given_up && Clock::now() < end && !s.finished) {
    s.changed.wait_until(lock, std::min(end, Clock::now() + kGiveUpPoll),
                         [&] { return s.finished; });
    lock.unlock();
    given_up = give_up && give_up();
    lock.lock();
  }
  if (s.finished) return;
  lock.unlock();
  s.halt();
  if (s.finished) return;  // in the last moment
  std::ostringstream given;
  given << most.count();
  s.tell_left(given_up ? "the wait for it was given up"
                       : "the " + given.str() + " s that were left for it are over");
}

/// After halt().
void Mirror::State::tell_left(const std::string& why) const {
  std::string what;
  for (const int64_t step : waiting)
    if (is_there(step)) what += "the checkpoint of step " + std::to_string(step) + ", ";
  tell("The mirror \"" + remote + "\" lacks " + what + "the run's last records, because " + why +
       ": copy " + run.string() + " to a safe place if you need them.");
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
    while (const std::optional<int64_t> step = next()) {
      if (mirror_checkpoint(*step)) continue;
      const std::lock_guard lock(mutex);
      waiting.insert(*step);
    }
    ended = mirror_run_files();
  } catch (const std::exception& error) {
    tell("The mirror \"" + remote + "\" is given up, and training goes on: " + error.what());
  }
  const std::lock_guard lock(mutex);
  finished = ended;
  changed.notify_all();
}

/// Waits for a step to mirror; none when there will be no more.
std::optional<int64_t> Mirror::State::next() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return halting || finishing || !waiting.empty(); });
  if (halting || waiting.empty()) return {};
  const int64_t newest = *waiting.rbegin();
  waiting.erase(newest);
  return newest;
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

/// False if it was stopped before it could do or tell.
bool Mirror::State::mirror_checkpoint(int64_t step) {
  std::string reason;
  for (int attempt = 1; attempt <= kMirrorAttempts; ++attempt) {
    const Outcome outcome = try_checkpoint(step, reason);
    // A checkpoint that is gone makes any step of it fail, and that is no failure.
    if (outcome != Outcome::kFailed || !is_there(step)) return true;
    if (rclone.stopped() || (attempt < kMirrorAttempts && !pause_after(attempt))) return false;
  }
  tell("The checkpoint of step " + std::to_string(step) + " is not in the mirror \"" + remote +
       "\" after " + std::to_string(kMirrorAttempts) +
       " attempts, and training goes on: " + reason + ".");
  return true;
}

std::string Mirror::State::place_of(int64_t step) const {
  return join_remote(mirrored_checkpoints(remote, run), folder.path(step).filename().string());
}

int64_t Mirror::State::newest_here(int64_t at_least) const {
  const std::vector<int64_t> steps = folder.steps();
  return steps.empty() ? at_least : std::max(at_least, steps.back());
}

Mirror::State::Outcome Mirror::State::try_checkpoint(int64_t step, std::string& reason) {
  const std::filesystem::path from = folder.path(step);
  const std::string to = place_of(step);
  const std::set<std::string> files = files_but_manifest(from);
  if (!is_there(step)) return Outcome::kGone;
  reason = look();
  if (!reason.empty()) return Outcome::kFailed;

  // A manifest there is of this checkpoint, or of an earlier one of the same step: then it goes
  // first, so that it never stands beside files that are not its own.
  const bool has_manifest = rclone.list(to, 1, reason).count(kManifestName) > 0;
  if (!reason.empty()) return Outcome::kFailed;
  bool is_new = true;
  if (has_manifest) {
    std::set<std::string> all = files;
    all.insert(kManifestName);
    is_new = !rclone.compare(from.string(), to, choose_all(std::move(all))).empty();
    if (is_new) reason = rclone.remove(to, kManifestName);
    if (!reason.empty()) return Outcome::kFailed;
  }
  superseded.erase(step);
  if (is_new) reason = rclone.copy(from.string(), to, choose_all_but_manifest(files));
  if (reason.empty()) reason = copy_run_files(newest_here(step));
  if (reason.empty() && is_new) {
    if (!is_there(step)) return Outcome::kGone;
    reason = rclone.copy(from.string(), to, choose_manifest());
  }
  if (!reason.empty()) return Outcome::kFailed;
  complete.insert(step);
  return Outcome::kDone;
}

/// What the mirror has of this run, once. Returns why it is not known. Errors: StoreError if that
/// is another run.
std::string Mirror::State::look() {
  if (looked) return {};
  const std::string place = mirrored_run(remote, run);
  std::string problem;
  const std::set<std::string> files = rclone.list(place, kDepthOfRun, problem);
  std::vector<SessionStart> there;
  if (problem.empty() && files.count(kSessionsName) > 0)
    there = session_starts(rclone.text(join_remote(place, kSessionsName), problem));
  if (!problem.empty()) return problem;
  const std::vector<SessionStart> here = session_starts_in(run);
  const std::string other = other_run(there, here);
  if (!other.empty())
    throw StoreError("\"" + place + "\" holds another run of this name, " + other +
                     ": name another checkpoint.mirror, or start the run under another name or "
                     "--run-dir.");
  complete = complete_steps(files);
  if (const std::optional<int64_t> first = first_superseded(there, here))
    superseded.insert(complete.lower_bound(*first), complete.end());
  has_old_summary = files.count(kSummaryName) > 0;
  looked = true;
  return {};
}

/// What the run took back: checkpoints that it does again or that are later than `newest`, and the
/// summary if it goes on. Returns why it could not.
std::string Mirror::State::take_back(int64_t newest) {
  std::set<int64_t> gone = superseded;
  gone.insert(complete.upper_bound(newest), complete.end());
  // The newest first: what is left at any moment is one run's beginning.
  for (auto step = gone.rbegin(); step != gone.rend(); ++step) {
    const std::string problem = rclone.remove(place_of(*step), kManifestName);
    if (!problem.empty()) return problem;
    superseded.erase(*step);
    complete.erase(*step);
  }
  std::error_code error;
  if (!has_old_summary || std::filesystem::exists(run / kSummaryName, error)) return {};
  const std::string problem = rclone.remove(mirrored_run(remote, run), kSummaryName);
  has_old_summary = !problem.empty();
  return problem;
}

/// False if it was stopped before it could do or tell.
bool Mirror::State::mirror_run_files() {
  std::string reason;
  for (int attempt = 1; attempt <= kMirrorAttempts; ++attempt) {
    if (rclone.stopped()) return false;
    // Only checkpoints that are pushed say which is the newest: others may be gone to make room.
    reason = look();
    if (reason.empty()) reason = copy_run_files(std::numeric_limits<int64_t>::max());
    if (reason.empty()) return true;
    if (attempt < kMirrorAttempts && !pause_after(attempt)) return false;
  }
  if (rclone.stopped()) return false;
  tell("The mirror \"" + remote + "\" lacks the run's last records after " +
       std::to_string(kMirrorAttempts) + " attempts: " + reason + ".");
  return true;
}

/// Takes back what the run took back, first. By way of copies: the journal grows while it is read,
/// and would never equal its mirror.
std::string Mirror::State::copy_run_files(int64_t newest) {
  const std::string problem = take_back(newest);
  if (!problem.empty()) return problem;
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
