#include "store/folder_lock.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "zerolab/error.h"

#include "store/file_layer.h"

namespace zerolab {

namespace {

bool has_no_locks(int error) {
  // EBADF: NFS makes a lock of its own of it, which wants a descriptor that a folder cannot have.
  return error == ENOTSUP || error == ENOLCK || error == EINVAL || error == ENOSYS ||
         error == EBADF;
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  int error = descriptor_ < 0 ? errno : 0;
  while (error == 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) error = errno;
  }
  if (descriptor_ >= 0 && (error == 0 || has_no_locks(error))) return;
  if (descriptor_ >= 0) ::close(descriptor_);
  if (error == EWOULDBLOCK) {
    throw StoreError(folder.string() +
                     ": another process is writing this run; wait for its end, or stop it first.");
  }
  throw StoreError(folder.string() + ": cannot be locked: " + errno_text(error) + ".");
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

}  // namespace zerolab
