#include <sstream>
#include <string>

#include "zerolab/error.h"

#include "store/mirror.h"
#include "store/rclone.h"

namespace zerolab {
namespace {

constexpr double kCheckSeconds = 20;

/// "rclone v1.60.1-DEV" to 1060; 0 if it says something else.
int minor_version(const std::string& text) {
  int major = 0, minor = 0;
  char v = 0, point = 0;
  std::istringstream words(text);
  std::string name;
  words >> name >> v >> major >> point >> minor;
  return words && v == 'v' && point == '.' ? major * 1000 + minor : 0;
}

bool is_no_remote(const std::string& reason) {
  for (const char* known : {"didn't find section", "didn't find backend", "config name", "decrypt"})
    if (reason.find(known) != std::string::npos) return true;
  return false;
}

}  // namespace

void Mirror::check(const std::string& remote, const std::string& origin) {
  const std::string where = origin + ": ";
  if (remote.empty())
    throw ConfigError(where + "the text is empty: give \"remote:path\" or a folder.");
  const StopSwitch stop;
  const Rclone rclone(stop, origin);
  const RcloneResult version = rclone.run({"version"}, kCheckSeconds);
  const int number = minor_version(version.output);
  if (!version.ok() && !version.stopped)
    throw ConfigError(where + "rclone does not run: " + version.reason + ".");
  if (number > 0 && number < 1053)
    throw ConfigError(where + "rclone in PATH is version 1." + std::to_string(number % 1000) +
                      ", and 1.53 or newer is needed: install one.");
  const std::string root = remote_root(remote);
  if (root.empty()) return;
  const RcloneResult found = rclone.run({"backend", "features", root}, kCheckSeconds);
  if (!found.ok() && is_no_remote(found.reason))
    throw ConfigError(where + "\"" + root + "\" is no remote that rclone knows (" + found.reason +
                      "): see `rclone listremotes`, make it with `rclone config`, or give a "
                      "folder.");
}

}  // namespace zerolab
