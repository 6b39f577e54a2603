#include "host/search_path.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/plugin_host.h"

namespace zerolab {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// A relative XDG_DATA_HOME is invalid and ignored, as its specification asks.
fs::path user_data_folder() {
  const fs::path xdg = variable("XDG_DATA_HOME");
  if (xdg.is_absolute()) return xdg;
  const fs::path home = variable("HOME");
  return home.is_absolute() ? home / ".local/share" : fs::path();
}

/// The plugins that came with this executable. A build tree has them beside its bin/.
SearchPlace own_place() {
  std::error_code failed;
  const fs::path root = fs::read_symlink("/proc/self/exe", failed).parent_path().parent_path();
  if (fs::exists(root / "CMakeCache.txt", failed)) return {root / "plugins", "build tree"};
  return {root / "lib/zerolab/plugins", "installation"};
}

class Places {
 public:
  void add(const fs::path& path, const std::string& origin, bool trusted = true) {
    if (path.empty()) return;
    fs::path absolute = fs::absolute(path).lexically_normal();
    if (!absolute.has_filename()) absolute = absolute.parent_path();  // a slash at the end
    std::error_code failed;
    for (const SearchPlace& place : places_) {
      if (place.trusted && (place.path == absolute || fs::equivalent(place.path, absolute, failed)))
        return;
    }
    places_.push_back({absolute, origin, trusted});
  }
  std::vector<SearchPlace> take() { return std::move(places_); }

 private:
  std::vector<SearchPlace> places_;
};

void add_from_environment(Places& places) {
  const std::string list = variable("ZEROLAB_PLUGIN_PATH");
  for (size_t start = 0; start <= list.size();) {
    const size_t end = std::min(list.find(':', start), list.size());
    places.add(list.substr(start, end - start), "ZEROLAB_PLUGIN_PATH");
    start = end + 1;
  }
}

std::string owner_name(uid_t uid) {
  const passwd* const user = ::getpwuid(uid);
  return user != nullptr ? user->pw_name : "user " + std::to_string(uid);
}

/// For a shell, whatever the path is made of.
std::string quoted(const fs::path& path) {
  std::string text = "'";
  for (char c : path.string()) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace

std::vector<SearchPlace> search_places(const PluginSearch& search) {
  Places places;
  for (const fs::path& path : search.from_command_line) places.add(path, "--plugin-path");
  for (const fs::path& path : search.from_experiment) {
    places.add(path, "the experiment's plugin_path", search.trust_experiment);
  }
  add_from_environment(places);
  const fs::path data = user_data_folder();
  if (!data.empty()) places.add(data / "zerolab/plugins", "user folder");
  const SearchPlace own = own_place();
  places.add(own.path, own.origin);
  return places.take();
}

bool is_private_group(gid_t gid, uid_t uid) {
  if (gid == 0) return false;
  const passwd* const user = ::getpwuid(uid);
  if (user == nullptr || user->pw_gid != gid) return false;
  const std::string name = user->pw_name;
  const group* const members = ::getgrgid(gid);
  if (members == nullptr || name != members->gr_name) return false;
  for (char** member = members->gr_mem; *member != nullptr; ++member) {
    if (name != *member) return false;
  }
  return true;
}

std::string unsafe_reason(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "";  // a missing place is noted elsewhere
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
    return path.string() + " is refused, because it belongs to " + owner_name(status.st_uid) +
           " and not to you or root; if you trust it, run: chown " + std::to_string(::geteuid()) +
           " " + quoted(path) + ".";
  }
  const bool by_group =
      (status.st_mode & S_IWGRP) != 0 && !is_private_group(status.st_gid, status.st_uid);
  const bool by_others = (status.st_mode & S_IWOTH) != 0;
  if (!by_group && !by_others) return "";
  const std::string who = by_others ? "everyone" : "its group";
  return path.string() + " is refused, because " + who +
         " may write to it; if you trust what is in it, run: chmod go-w " + quoted(path) + ".";
}

}  // namespace zerolab
