#pragma once
// A plain file that is read at any place; its end counts as an error, not as a surprise.
//
// Ranks: local. Errors: errno values; nothing throws.
// Owns: its descriptor.

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace zerolab {

class InputFile {
 public:
  /// Opens it. What failed is error().
  explicit InputFile(const std::filesystem::path& path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  int error() const { return error_; }    ///< 0: it is open, and a regular file
  int64_t size() const { return size_; }  ///< bytes, when it was opened
  int descriptor() const { return descriptor_; }
  /// All of [offset, offset + size). Returns 0, the errno of the call that failed, or ENODATA if
  /// the file ends before that.
  [[nodiscard]] int read_at(int64_t offset, void* out, size_t size) const;

 private:
  int descriptor_ = -1, error_ = 0;
  int64_t size_ = 0;
};

}  // namespace zerolab
