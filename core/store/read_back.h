#pragma once
// Reads a file again while it is written, a step behind the writer, on a thread of its own, and
// keeps the disk at work meanwhile. It sees what the kernel holds of the file, which is what goes
// to the disk.
//
// Ranks: local. Threads: one writer calls; the reader is inside.
// Errors: errno values.
// Owns: its thread, its descriptor.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>

#include "store/input_file.h"
#include "store/xxh128.h"

namespace zerolab {

class ReadBack {
 public:
  /// `path` is there and grows up to `bytes`.
  ReadBack(const std::filesystem::path& path, int64_t bytes);
  ReadBack(const ReadBack&) = delete;
  ReadBack& operator=(const ReadBack&) = delete;
  ~ReadBack();  ///< gives up

  /// [hot] So many bytes are written.
  void written(int64_t bytes);
  /// Waits until all `bytes` are read, which must have been written. Returns 0 or an errno.
  [[nodiscard]] int finish();
  /// Of what was read. Order: after finish().
  std::string hex() const { return hash_.hex(); }

 private:
  void run();
  void publish(int64_t bytes);
  const InputFile file_;
  const int64_t bytes_;
  Xxh128 hash_;
  int error_;
  int64_t published_ = 0;            // the writer's
  std::atomic<int64_t> written_{0};  // what the reader knows of; -1: give up
  std::thread thread_;
};

}  // namespace zerolab
