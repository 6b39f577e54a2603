#pragma once
// A file layer whose n-th call fails as on a full disk: a write puts half of its bytes down first.

#include <cerrno>
#include <filesystem>

#include "store/file_layer.h"

namespace zerolab {

class FaultyFiles : public FileLayer {
 public:
  explicit FaultyFiles(int failing_call) : failing_call_(failing_call) {}
  int num_calls() const { return num_calls_; }

  int make_directory(const std::filesystem::path& path) override {
    return fails() ? -1 : FileLayer::make_directory(path);
  }
  int create(const std::filesystem::path& path) override {
    return fails() ? -1 : FileLayer::create(path);
  }
  int open_to_append(const std::filesystem::path& path) override {
    return fails() ? -1 : FileLayer::open_to_append(path);
  }
  ssize_t write(int descriptor, const char* data, size_t size) override {
    if (full_ || fails()) {
      if (!full_ && size > 1) {
        full_ = true;
        return FileLayer::write(descriptor, data, size / 2);
      }
      errno = ENOSPC;
      return -1;
    }
    return FileLayer::write(descriptor, data, size);
  }
  int sync(int descriptor) override { return fails() ? -1 : FileLayer::sync(descriptor); }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return fails() ? -1 : FileLayer::rename(from, to);
  }
  int unlink(const std::filesystem::path& path) override {
    return fails() ? -1 : FileLayer::unlink(path);
  }

 private:
  bool fails() {
    errno = ENOSPC;
    return ++num_calls_ == failing_call_;
  }
  int failing_call_, num_calls_ = 0;
  bool full_ = false;
};

}  // namespace zerolab
