#include "store/read_back.h"

#include <algorithm>
#include <vector>

#include <fcntl.h>

namespace zerolab {

namespace {

constexpr int64_t kBlockBytes = 256 << 10;  // stays in a core's cache
constexpr int64_t kStepBytes = 8 << 20;     // what reader and disk are told of at once

}  // namespace

ReadBack::ReadBack(const std::filesystem::path& path, int64_t bytes)
    : file_(path), bytes_(bytes), error_(file_.error()) {
  if (error_ == 0) thread_ = std::thread([this] { run(); });
}

ReadBack::~ReadBack() {
  if (!thread_.joinable()) return;
  publish(-1);
  thread_.join();
}

void ReadBack::written(int64_t bytes) {
  if (bytes == bytes_ || bytes - published_ >= kStepBytes) publish(bytes);
}

void ReadBack::publish(int64_t bytes) {
  published_ = bytes;
  written_.store(bytes, std::memory_order_release);
  written_.notify_one();
}

int ReadBack::finish() {
  if (thread_.joinable()) thread_.join();
  return error_;
}

void ReadBack::run() {
  std::vector<char> block(kBlockBytes);
  int64_t known = 0, done = 0;
  while (done < bytes_ && error_ == 0) {
    written_.wait(known, std::memory_order_acquire);
    known = written_.load(std::memory_order_acquire);
    if (known < 0) return;
    // Only asks for it: what goes wrong is fsync's to say.
    ::sync_file_range(file_.descriptor(), done, known - done, SYNC_FILE_RANGE_WRITE);
    while (done < known && error_ == 0) {
      const auto size = static_cast<size_t>(std::min(known - done, kBlockBytes));
      error_ = file_.read_at(done, block.data(), size);
      if (error_ == 0) hash_.update(block.data(), size);
      done += static_cast<int64_t>(size);
    }
  }
}

}  // namespace zerolab
