#pragma once
// What the host's tests share: a folder of their own, copies of the test libraries, variables set
// for a while.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>

namespace host_test {

namespace fs = std::filesystem;

inline fs::path library(std::string_view name) {
  return fs::path(HOST_TEST_LIBRARIES) / (std::string(name) + ".so");
}

inline std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("no file " + file.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

/// With the mode an installed file has, whatever the umask.
inline fs::path write(const fs::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ::chmod(file.c_str(), 0644);
  return file;
}

inline fs::path put_copy(const fs::path& from, const fs::path& to) {
  return write(to, read(from));
}

/// Replaces the only occurrence of `from` by a text of the same length.
inline std::string patched(std::string bytes, std::string_view from, std::string_view to) {
  const size_t at = bytes.find(from);
  if (from.size() != to.size() || at == std::string::npos ||
      bytes.find(from, at + 1) != std::string::npos) {
    throw std::runtime_error("cannot patch " + std::string(from));
  }
  return bytes.replace(at, from.size(), to);
}

/// A folder that goes away with the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "zerolab-host-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = fs::canonical(name);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }
  fs::path operator/(const fs::path& name) const { return path_ / name; }
  /// A folder in it, with the mode an installed one has.
  fs::path folder(const fs::path& name) const {
    fs::create_directories(path_ / name);
    ::chmod((path_ / name).c_str(), 0755);
    return path_ / name;
  }

 private:
  fs::path path_;
};

class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// Keeps plugins of whoever runs the tests out of the search.
struct NoPluginsOfTheUser {
  Folder home;
  Variable path{"ZEROLAB_PLUGIN_PATH", ""};
  Variable data{"XDG_DATA_HOME", (home / "data").string()};
};

/// The message of the exception that `body` throws; empty if it throws none or another.
template <class Exception, class Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace host_test
