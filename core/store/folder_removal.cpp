#include "store/folder_removal.h"

#include <algorithm>
#include <cerrno>

namespace zerolab {

namespace fs = std::filesystem;

namespace {

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

/// Remembers the first error of several calls.
class FirstError {
 public:
  void note(int error) {
    if (error_ == 0 && error != ENOENT) error_ = error;
  }
  int error() const { return error_; }

 private:
  int error_ = 0;
};

int unlink(FileLayer& files, const fs::path& path) {
  return files.unlink(path) == 0 ? 0 : errno;
}

}  // namespace

bool is_real_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(fs::symlink_status(path, ignored));
}

std::vector<fs::path> names_in(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> found;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    found.push_back(at->path());
  std::sort(found.begin(), found.end());
  return found;
}

int remove_folder(FileLayer& files, const fs::path& path, const std::string& first) {
  FirstError failure;
  if (!is_real_folder(path)) {
    if (is_there(path)) failure.note(unlink(files, path));
    return failure.error();
  }
  if (is_there(path / first) && !is_real_folder(path / first)) {
    failure.note(unlink(files, path / first));
    if (failure.error() != 0) return failure.error();
    failure.note(sync_folder(files, path));
  }
  std::error_code error;
  for (const fs::path& child : names_in(path, error))
    failure.note(remove_folder(files, child, first));
  failure.note(error.value());
  if (files.remove_directory(path) != 0) failure.note(errno);
  return failure.error();
}

}  // namespace zerolab
