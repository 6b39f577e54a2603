#include <cerrno>
#include <charconv>
#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "zerolab/error.h"

#include "store/checkpoint_folder.h"
#include "store/file_layer.h"
#include "store/mirror.h"
#include "store/mirror_files.h"
#include "store/rclone.h"

namespace zerolab {
namespace {

// Somebody waits for it, and rclone itself tries again, too.
constexpr int kFetchAttempts = 2;
constexpr auto kFetchPause = std::chrono::seconds(2);

/// A folder that goes away again, unless it was given another name.
class PartialFolder {
 public:
  explicit PartialFolder(std::filesystem::path path) : path_(std::move(path)) {
    remove_quietly(path_);
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    if (error) throw StoreError(path_.string() + ": cannot be made: " + error.message() + ".");
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
    const std::optional<int64_t> step = find(wanted);
    if (!step) return {};
    const bool run_is_empty = folder_.steps().empty();
    bring_small_files(run_is_empty);
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

  /// The step to bring: complete in the mirror.
  std::optional<int64_t> find(int64_t wanted) const {
    const std::set<std::string> files = list(mirrored_checkpoints(remote_, run_), 2);
    std::optional<int64_t> newest;
    for (const std::string& file : files) {
      const std::string_view prefix = "step-", suffix = "/manifest.json";
      if (!file.starts_with(prefix) || !file.ends_with(suffix)) continue;
      int64_t step = -1;
      const char* end = file.data() + file.size() - suffix.size();
      const auto parsed = std::from_chars(file.data() + prefix.size(), end, step);
      if (parsed.ec != std::errc() || parsed.ptr != end || step < 0) continue;
      if (folder_.path(step).filename().string() + std::string(suffix) != file) continue;
      if (wanted < 0 ? !newest || step > *newest : step == wanted) newest = step;
    }
    return newest;
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

  void bring_small_files(bool replace) const {
    std::set<std::string> names = list(mirrored_run(remote_, run_), 1);
    std::erase_if(names, [&](const std::string& name) {
      return !is_small_file(name) || (!replace && std::filesystem::exists(run_ / name));
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
