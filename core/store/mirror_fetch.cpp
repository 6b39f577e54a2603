#include <cerrno>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "zerolab/error.h"

#include "store/checkpoint_folder.h"
#include "store/file_layer.h"
#include "store/folder_lock.h"
#include "store/mirror.h"
#include "store/mirror_files.h"
#include "store/mirror_sessions.h"
#include "store/rclone.h"
#include "store/sessions.h"

namespace zerolab {
namespace {

// Somebody waits for it, and rclone itself tries again, too.
constexpr int kFetchAttempts = 2;
constexpr auto kFetchPause = std::chrono::seconds(2);

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw StoreError(path.string() + ": cannot be made: " + error.message() + ".");
}

/// A folder that goes away again, unless it was given another name.
class PartialFolder {
 public:
  explicit PartialFolder(std::filesystem::path path) : path_(std::move(path)) {
    remove_quietly(path_);
    make_folder(path_);
  }
  ~PartialFolder() { remove_quietly(path_); }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void sync_path(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int error = descriptor < 0 ? errno : ::fsync(descriptor) != 0 ? errno : 0;
  if (descriptor >= 0) ::close(descriptor);
  if (error != 0 && error != EINVAL)
    throw StoreError(path.string() + ": cannot be written: " + errno_text(error) + ".");
}

void move_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  if (error) throw StoreError(to.string() + ": cannot be written: " + error.message() + ".");
}

class Fetch {
 public:
  Fetch(std::string remote, const std::filesystem::path& run)
      : remote_(std::move(remote)), run_(whole_path(run)), rclone_(stop_), folder_(run_) {}

  std::optional<int64_t> operator()(int64_t wanted) {
    std::optional<FolderLock> lock;
    if (std::filesystem::exists(run_)) lock.emplace(run_);
    const std::set<std::string> files = list(mirrored_run(remote_, run_), kDepthOfRun);
    const std::optional<int64_t> step = choose(complete_steps(files), wanted);
    if (!step) return {};
    check_same_run(files);
    if (!lock) {
      make_folder(run_);
      lock.emplace(run_);
    }
    bring_small_files(files, folder_.steps().empty());
    if (!std::filesystem::exists(folder_.path(*step) / kManifestName)) bring_checkpoint(*step);
    return step;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw StoreError("the mirror \"" + mirrored_run(remote_, run_) +
                     "\" cannot be read: " + reason + "; see whether `rclone lsf` can list it.");
  }

  std::set<std::string> list(const std::string& place, int depth) const {
    std::string problem;
    const std::set<std::string> files = rclone_.list(place, depth, problem);
    if (!problem.empty()) fail(problem);
    return files;
  }

  static std::optional<int64_t> choose(const std::set<int64_t>& steps, int64_t wanted) {
    if (wanted >= 0) return steps.count(wanted) > 0 ? std::optional(wanted) : std::nullopt;
    return steps.empty() ? std::nullopt : std::optional(*steps.rbegin());
  }

  void check_same_run(const std::set<std::string>& files) const {
    const std::vector<SessionStart> here = session_starts_in(run_);
    if (here.empty() || files.count(kSessionsName) == 0) return;
    const std::string place = mirrored_run(remote_, run_);
    std::string problem;
    const auto there = session_starts(rclone_.text(join_remote(place, kSessionsName), problem));
    if (!problem.empty()) fail(problem);
    const std::string other = other_run(there, here);
    if (other.empty()) return;
    throw StoreError("the mirror \"" + place + "\" holds another run than " + run_.string() + ", " +
                     other + ": move that folder away to fetch the mirror's run, or name " +
                     "the mirror of this one.");
  }

  void copy(const std::string& from, const std::filesystem::path& to,
            const FileChoice& files) const {
    std::string reason;
    for (int attempt = 1; attempt <= kFetchAttempts; ++attempt) {
      if (attempt > 1) std::this_thread::sleep_for(kFetchPause);
      reason = rclone_.copy(from, to.string(), files);
      if (reason.empty()) return;
    }
    fail(reason);
  }

  /// `files_there`: of the mirrored run. A run that has checkpoints and no summary goes on: it gets
  /// none.
  void bring_small_files(const std::set<std::string>& files_there, bool replace) const {
    std::set<std::string> names = files_there;
    std::erase_if(names, [&](const std::string& name) {
      return !is_small_file(name) ||
             (!replace && (name == kSummaryName || std::filesystem::exists(run_ / name)));
    });
    if (names.empty()) return;
    const PartialFolder partial(run_ / kMirrorPartial);
    FileChoice files = choose_all(names);
    for (const std::string& name : names) files.filters.push_back("--include=/" + name);
    copy(mirrored_run(remote_, run_), partial.path(), files);
    for (const std::string& name : names) {
      sync_path(partial.path() / name);
      move_path(partial.path() / name, run_ / name);
    }
    sync_path(run_);
  }

  void bring_checkpoint(int64_t step) const {
    const std::filesystem::path place = folder_.path(step);
    const std::string from =
        join_remote(mirrored_checkpoints(remote_, run_), place.filename().string());
    std::set<std::string> names = list(from, 1);
    names.erase(kManifestName);
    const PartialFolder partial(folder_.partial(step));
    copy(from, partial.path(), choose_all_but_manifest(names));
    copy(from, partial.path(), choose_manifest());
    for (const std::string& name : names) sync_path(partial.path() / name);
    sync_path(partial.path() / kManifestName);
    sync_path(partial.path());
    remove_quietly(place);  // without a manifest it is no checkpoint
    move_path(partial.path(), place);
    sync_path(place.parent_path());
  }

  const std::string remote_;
  const std::filesystem::path run_;
  const StopSwitch stop_;
  const Rclone rclone_;
  const CheckpointFolder folder_;
};

}  // namespace

std::optional<int64_t> Mirror::fetch(const std::string& remote, const std::filesystem::path& run,
                                     int64_t step) {
  return Fetch(remote, run)(step);
}

}  // namespace zerolab
