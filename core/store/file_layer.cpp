#include "store/file_layer.h"

#include <cerrno>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "zerolab/error.h"

namespace zerolab {

FileLayer::~FileLayer() = default;

int FileLayer::make_directory(const std::filesystem::path& path) {
  return ::mkdir(path.c_str(), 0777);
}

int FileLayer::create(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
}

int FileLayer::open_to_append(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
}

ssize_t FileLayer::write(int descriptor, const char* data, size_t size) {
  return ::write(descriptor, data, size);
}

int FileLayer::sync(int descriptor) {
  return ::fsync(descriptor);
}

int FileLayer::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  return ::rename(from.c_str(), to.c_str());
}

int FileLayer::exchange(const std::filesystem::path& one, const std::filesystem::path& other) {
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE);
}

int FileLayer::unlink(const std::filesystem::path& path) {
  return ::unlink(path.c_str());
}

int FileLayer::remove_directory(const std::filesystem::path& path) {
  return ::rmdir(path.c_str());
}

FileLayer& real_files() {
  static FileLayer files;
  return files;
}

std::filesystem::path whole_path(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::absolute(path, ignored).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

std::string errno_advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space there";
    case EACCES:
    case EPERM:
    case EROFS:
      return "let this user write there";
    case ENOENT:
    case ENOTDIR:
      return "see who removed the run's folder";
    default:
      return "look at the disk";
  }
}

int write_all(FileLayer& files, int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = files.write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return EIO;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

namespace {

int write_partial(FileLayer& files, const std::filesystem::path& partial, std::string_view text) {
  ::unlink(partial.c_str());  // of a process that was killed here
  const int descriptor = files.create(partial);
  if (descriptor < 0) return errno;
  int error = write_all(files, descriptor, text);
  if (error == 0 && files.sync(descriptor) != 0) error = errno;
  if (::close(descriptor) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

int sync_folder(FileLayer& files, const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  // Some file systems cannot and say so with EINVAL; nothing more can be done there.
  const int error = files.sync(descriptor) != 0 && errno != EINVAL ? errno : 0;
  ::close(descriptor);
  return error;
}

void move_into_place(FileLayer& files, const std::filesystem::path& partial,
                     const std::filesystem::path& path) {
  int error = 0;
  if (files.rename(partial, path) != 0) {
    error = errno;
    ::unlink(partial.c_str());
  } else {
    error = sync_folder(files, path.parent_path());
  }
  if (error != 0)
    throw StoreError(path.string() + ": cannot be written: " + errno_text(error) + ".");
}

void write_file(FileLayer& files, const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path partial = path;
  partial += ".partial";
  if (const int error = write_partial(files, partial, text); error != 0) {
    ::unlink(partial.c_str());
    throw StoreError(path.string() + ": cannot be written: " + errno_text(error) + ".");
  }
  move_into_place(files, partial, path);
}

void remove_file(FileLayer& files, const std::filesystem::path& path) {
  int error = 0;
  if (files.unlink(path) == 0) {
    error = sync_folder(files, path.parent_path());
  } else if (errno != ENOENT) {
    error = errno;
  }
  if (error != 0)
    throw StoreError(path.string() + ": cannot be removed: " + errno_text(error) + ".");
}

bool file_exists(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::none) {
    throw StoreError(path.string() + ": cannot be looked at: " + error.message() + ".");
  }
  return status.type() != std::filesystem::file_type::not_found;
}

std::string read_text_file(const std::filesystem::path& path) {
  std::string text;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ssize_t count = descriptor < 0 ? -1 : 1;
  while (count > 0) {
    char bytes[1 << 16];
    count = ::read(descriptor, bytes, sizeof bytes);
    if (count > 0) text.append(bytes, static_cast<size_t>(count));
    if (count < 0 && errno == EINTR) count = 1;
  }
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (count < 0) {
    throw StoreError(path.string() + ": cannot be read: " + errno_text(error) + ".");
  }
  return text;
}

}  // namespace zerolab
