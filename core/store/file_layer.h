#pragma once
// The system calls that write a run's plain files, behind one interface, so that a test can make
// any of them fail; and whole files, read, and written so that a reader sees all of one or nothing.

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace zerolab {

/// Each function does what the system call of its name does: -1 and errno when it fails.
class FileLayer {
 public:
  virtual ~FileLayer();
  /// mkdir: fails if anything of that name exists.
  virtual int make_directory(const std::filesystem::path& path);
  /// open for appending; fails if anything of that name exists. Returns a descriptor.
  virtual int create(const std::filesystem::path& path);
  /// open for appending to a file that is there. Returns a descriptor.
  virtual int open_to_append(const std::filesystem::path& path);
  virtual ssize_t write(int descriptor, const char* data, size_t size);
  virtual int sync(int descriptor);
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to);
  /// renameat2: two names change places, at once. EINVAL where the file system cannot.
  virtual int exchange(const std::filesystem::path& one, const std::filesystem::path& other);
  virtual int remove_directory(const std::filesystem::path& path);
  virtual int unlink(const std::filesystem::path& path);
};

/// The layer that writes to the disk.
FileLayer& real_files();

/// Absolute, without a slash at the end.
std::filesystem::path whole_path(const std::filesystem::path& path);

/// The system's words for an errno value.
std::string errno_text(int error);
/// What to do about it, as a sentence's end.
std::string errno_advice(int error);

/// Writes all of `text`. Returns 0, or the errno of the call that failed.
[[nodiscard]] int write_all(FileLayer& files, int descriptor, std::string_view text);

/// Makes the names in a folder durable, where the file system can. Returns 0, or the errno of the
/// call that failed.
[[nodiscard]] int sync_folder(FileLayer& files, const std::filesystem::path& folder);

/// Gives a file that is written and synced its final name, durably. Errors: StoreError with path
/// and reason; then `partial` is gone and what was at `path` before is untouched.
void move_into_place(FileLayer& files, const std::filesystem::path& partial,
                     const std::filesystem::path& path);

/// Puts `text` at `path`: partial name, fsync, rename, fsync of the folder. Errors: StoreError with
/// path and reason; then the partial file is gone and what was at `path` before is untouched.
void write_file(FileLayer& files, const std::filesystem::path& path, std::string_view text);

/// Takes the file away for good: unlink, fsync of the folder. A file that is not there is no error.
/// Errors: StoreError with path and reason.
void remove_file(FileLayer& files, const std::filesystem::path& path);

/// False only if nothing of that name is there. Errors: StoreError if that cannot be known: a file
/// that cannot be looked at, taken for a missing one, would be written over.
bool file_exists(const std::filesystem::path& path);

/// All bytes of a plain file. Errors: StoreError if it is missing or cannot be read.
std::string read_text_file(const std::filesystem::path& path);

}  // namespace zerolab
