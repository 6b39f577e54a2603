#pragma once
// A file layer that stops at its n-th call: there the disk is full for one call, or the process
// "dies", after which no call does anything any more.

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "store/file_layer.h"

namespace zerolab {

/// Nothing of the store may take it for one of its errors.
struct Killed {};

class InterruptedFiles : public FileLayer {
 public:
  enum class By { kFullDisk, kKill };
  InterruptedFiles(By by, int call, bool can_exchange = true)
      : by_(by), call_(call), can_exchange_(can_exchange) {}
  /// False: it had fewer calls.
  bool reached() const { return num_calls_ >= call_; }

  int make_directory(const std::filesystem::path& path) override {
    return stops() ? -1 : FileLayer::make_directory(path);
  }
  int create(const std::filesystem::path& path) override {
    return stops() ? -1 : FileLayer::create(path);
  }
  ssize_t write(int descriptor, const char* data, size_t size) override {
    if (num_calls_ + 1 == call_) FileLayer::write(descriptor, data, size / 2);
    return stops() ? -1 : FileLayer::write(descriptor, data, std::min<size_t>(size, 700));
  }
  int sync(int descriptor) override { return stops() ? -1 : FileLayer::sync(descriptor); }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return stops() ? -1 : FileLayer::rename(from, to);
  }
  int exchange(const std::filesystem::path& one, const std::filesystem::path& other) override {
    if (stops()) return -1;
    errno = EINVAL;
    return can_exchange_ ? FileLayer::exchange(one, other) : -1;
  }
  int unlink(const std::filesystem::path& path) override {
    return stops() ? -1 : FileLayer::unlink(path);
  }
  int remove_directory(const std::filesystem::path& path) override {
    return stops() ? -1 : FileLayer::remove_directory(path);
  }

 private:
  bool stops() {
    ++num_calls_;
    if (by_ == By::kKill && num_calls_ >= call_) throw Killed{};
    errno = ENOSPC;
    return num_calls_ == call_;
  }
  By by_;
  int call_, num_calls_ = 0;
  bool can_exchange_;
};

}  // namespace zerolab
