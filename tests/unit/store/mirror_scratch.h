#pragma once
// Runs with checkpoints to mirror, and an rclone that does what a test wants.

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "scratch.h"
#include "store/checkpoint_folder.h"
#include "store/child_output.h"
#include "store/mirror.h"

namespace zerolab {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

inline constexpr auto kNoPause = std::chrono::milliseconds(1);
inline constexpr double kLong = 100;

/// A variable of the environment, for a while.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() {
    if (before_) {
      setenv(name_.c_str(), before_->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

/// A script in rclone's place; in it, $RCLONE is the real one.
class FakeRclone {
 public:
  explicit FakeRclone(const std::string& script)
      : folder_(fs::current_path() / "bin"),
        real_("RCLONE", program_in_path("rclone")),
        path_("PATH", folder_.string() + ":" + std::getenv("PATH")) {
    fs::create_directory(folder_);
    std::ofstream(folder_ / "rclone") << "#!/bin/sh\n" << script << "\n";
    fs::permissions(folder_ / "rclone", fs::perms::all);
  }

 private:
  fs::path folder_;
  Variable real_, path_;
};

class Told {
 public:
  Mirror::Tell here() {
    return [this](const std::string& sentence) {
      const std::lock_guard lock(mutex_);
      sentences_.push_back(sentence);
    };
  }
  std::vector<std::string> sentences() const {
    const std::lock_guard lock(mutex_);
    return sentences_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> sentences_;
};

inline void write(const fs::path& file, const std::string& text) {
  if (file.has_parent_path()) fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

inline fs::path make_checkpoint(const fs::path& run, int64_t step, const std::string& contents) {
  const fs::path folder = CheckpointFolder(run).path(step);
  write(folder / "rank-0000.h5", contents);
  write(folder / "rank-0001.h5", "of rank 1: " + contents);
  write(folder / "config.resolved.toml", "seed = 1\n");
  write(folder / "manifest.json", "{\"of\": \"" + contents + "\"}\n");
  return folder;
}

inline void make_run(const fs::path& run) {
  write(run / "config.resolved.toml", "seed = 1\n");
  write(run / "config.resolved.2.toml", "seed = 2\n");
  write(run / "environment.json", "{}\n");
  write(run / "metrics.jsonl", "{\"step\": 1}\n");
  write(run / "metrics.h5", "not for the mirror");
}

/// The line of a session in sessions.jsonl.
inline std::string session(const std::string& started, int64_t first_step = 1,
                           const std::string& source = "") {
  return "{\"first_step\":" + std::to_string(first_step) + ",\"started\":\"" + started +
         "\",\"source\":\"" + source + "\"}\n";
}

/// All files below, with what is in them.
inline std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> result;
  if (!fs::exists(folder)) return result;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      result[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
  return result;
}

inline std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline void wait_for(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(condition());
}

inline std::vector<std::string> mirror_all(const std::string& remote, const fs::path& run,
                                           const std::vector<int64_t>& steps) {
  Told told;
  Mirror mirror(remote, run, told.here(), kNoPause);
  for (const int64_t step : steps) mirror.push(step);
  mirror.finish(kLong);
  return told.sentences();
}

}  // namespace zerolab
