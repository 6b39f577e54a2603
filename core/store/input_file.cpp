#include "store/input_file.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace zerolab {

InputFile::InputFile(const std::filesystem::path& path)
    // Without O_NONBLOCK, opening a FIFO under the file's name would wait for a writer.
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    error_ = errno;
  } else if (!S_ISREG(status.st_mode)) {
    error_ = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  } else {
    size_ = status.st_size;
  }
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int InputFile::read_at(int64_t offset, void* out, size_t size) const {
  char* to = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = ::pread(descriptor_, to, size, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return ENODATA;
    to += got;
    offset += got;
    size -= static_cast<size_t>(got);
  }
  return 0;
}

}  // namespace zerolab
