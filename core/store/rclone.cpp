#include "store/rclone.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "zerolab/error.h"

namespace zerolab {
namespace {

constexpr int kNoSuchFolder = 3;  // rclone's exit code

std::vector<std::string> environment_with_defaults() {
  std::vector<std::string> result;
  for (char** entry = ::environ; entry && *entry; ++entry) result.emplace_back(*entry);
  constexpr std::array<const char*, 4> defaults{"RCLONE_CONTIMEOUT=15s", "RCLONE_TIMEOUT=60s",
                                                "RCLONE_LOW_LEVEL_RETRIES=3", "RCLONE_RETRIES=2"};
  for (const std::string_view text : defaults) {
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool set = std::any_of(result.begin(), result.end(), [&](const std::string& entry) {
      return std::string_view(entry).starts_with(name);
    });
    if (!set) result.emplace_back(text);
  }
  return result;
}

/// One line, no full stop, of bounded length.
std::string as_reason(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  constexpr size_t kLongest = 400;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

std::string text_of(const nlohmann::json& entry, const char* key) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// The last thing that rclone's log calls an error, with its file; else what it said at the end,
/// which older ones write as plain text after date and time.
std::string reason_from_log(const std::string& log, int code) {
  std::string error, closing;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    const bool is_json = entry.is_object();
    const std::string text = is_json ? text_of(entry, "msg") : line;
    const size_t failed = text.find("Failed to ");
    if (failed != std::string::npos && (!is_json || failed == 0)) closing = text.substr(failed);
    if (!is_json || text.starts_with("Attempt ")) continue;
    const std::string level = text_of(entry, "level"), object = text_of(entry, "object");
    if (level == "error" || level == "critical")
      error = object.empty() ? text : object + ": " + text;
  }
  if (!error.empty()) return as_reason(error);
  if (!closing.empty()) return as_reason(closing);
  return code < 0 ? "rclone was ended by signal " + std::to_string(-code)
                  : "rclone failed with exit code " + std::to_string(code);
}

}  // namespace

std::string join_remote(const std::string& remote, const std::string& below) {
  const bool open = remote.empty() || remote.back() == ':' || remote.back() == '/';
  return remote + (open ? "" : "/") + below;
}

std::string remote_root(const std::string& remote) {
  bool in_options = false;
  char quote = 0;
  for (size_t i = 0; i < remote.size(); ++i) {
    const char c = remote[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (in_options && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == ',') {
      in_options = true;
    } else if (c == '/' && !in_options) {
      return {};
    } else if (c == ':' && i > 0) {
      return remote.substr(0, i + 1);
    }
  }
  return {};
}

Rclone::Rclone(const StopSwitch& stop, const std::string& origin)
    : stop_(stop), program_(program_in_path("rclone")), environment_(environment_with_defaults()) {
  if (program_.empty())
    throw ConfigError(
        origin +
        ": the program rclone, which copies checkpoints, is not in PATH: install it (Debian, "
        "Ubuntu: apt-get install rclone), or leave this out.");
}

RcloneResult Rclone::run(const std::vector<std::string>& arguments, double seconds) const {
  std::vector<std::string> all{"--use-json-log",       "--stats=2s",
                               "--stats-one-line",     "--stats-log-level=NOTICE",
                               "--ask-password=false", "--auto-confirm"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  ChildOutput child = run_program(program_, all, environment_, stop_, seconds);
  RcloneResult result;
  result.code = child.code;
  result.stopped = child.stopped;
  result.output = std::move(child.output);
  result.log = std::move(child.errors);
  if (result.stopped) {
    result.reason = "it was stopped";
  } else if (result.code != 0) {
    result.reason = reason_from_log(result.log, result.code);
  }
  return result;
}

std::set<std::string> Rclone::list(const std::string& folder, int depth,
                                   std::string& problem) const {
  const RcloneResult result = run(
      {"lsf", "--files-only", "--recursive", "--max-depth=" + std::to_string(depth), "--", folder});
  problem = result.code == kNoSuchFolder ? "" : result.reason;
  std::set<std::string> files;
  if (!result.ok()) return files;
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) files.insert(line);
  return files;
}

std::string Rclone::text(const std::string& file, std::string& problem) const {
  RcloneResult result = run({"cat", "--", file});
  problem = result.reason;
  return std::move(result.output);
}

std::string Rclone::remove(const std::string& folder, const std::string& name) const {
  const RcloneResult result = run({"deletefile", "--", join_remote(folder, name)});
  if (result.ok()) return {};
  // Gone all the same?
  std::string problem;
  const bool is_there = list(folder, 1, problem).count(name) > 0;
  return is_there || !problem.empty() ? result.reason : std::string();
}

std::string Rclone::copy(const std::string& from, const std::string& to,
                         const FileChoice& files) const {
  std::string problem = transfer(from, to, files, "--checksum");
  if (!problem.empty()) return problem;
  problem = compare(from, to, files);
  if (problem.empty() || stopped()) return problem;
  problem = transfer(from, to, files, "--ignore-times");
  return problem.empty() ? compare(from, to, files) : problem;
}

/// `unless`: what makes rclone pass a file over.
std::string Rclone::transfer(const std::string& from, const std::string& to,
                             const FileChoice& files, const char* unless) const {
  std::vector<std::string> arguments{"copy", unless};
  arguments.insert(arguments.end(), files.filters.begin(), files.filters.end());
  arguments.insert(arguments.end(), {"--", from, to});
  return run(arguments).reason;
}

std::string Rclone::compare(const std::string& from, const std::string& to,
                            const FileChoice& files) const {
  std::vector<std::string> arguments{"check", "--one-way", "--combined=-"};
  const bool by_hash = has_hashes(from) && has_hashes(to);
  if (!by_hash) arguments.emplace_back("--download");
  arguments.insert(arguments.end(), files.filters.begin(), files.filters.end());
  arguments.insert(arguments.end(), {"--", from, to});
  RcloneResult result = run(arguments);
  // Some backends know hashes, but not of each file.
  if (result.ok() && by_hash && result.log.find("could not be checked") != std::string::npos) {
    arguments.insert(arguments.begin() + 1, "--download");
    result = run(arguments);
  }
  if (!result.ok()) return result.reason;
  // A filter in a variable of the user's may have left files out, which rclone calls a success.
  std::set<std::string> missing = files.names;
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("= ")) missing.erase(line.substr(2));
  if (missing.empty()) return {};
  return *missing.begin() + ": rclone did not copy it, and does not say why (does a variable " +
         "RCLONE_* filter files?)";
}

bool Rclone::has_hashes(const std::string& remote) const {
  const std::string root = remote_root(remote);
  if (root.empty() || with_hashes_.count(root) > 0) return true;
  const RcloneResult result = run({"backend", "features", root});
  const auto features = nlohmann::json::parse(result.output, nullptr, false);
  if (!result.ok() || !features.is_object()) return false;
  const auto hashes = features.find("Hashes");
  if (hashes == features.end() || !hashes->is_array() || hashes->empty()) return false;
  with_hashes_.insert(root);
  return true;
}

}  // namespace zerolab
