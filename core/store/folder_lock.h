#pragma once
// One writer for a run's folder: an exclusive flock on the folder itself, so nothing is left behind
// that could outlive the process.
// Errors: StoreError if another process, or another object of this one, has it.
// Owns: the descriptor; the lock ends with it.

#include <filesystem>

namespace zerolab {

class FolderLock {
 public:
  /// A file system without such locks is passed over: there nobody is kept out.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace zerolab
