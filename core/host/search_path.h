#pragma once
// Where plugins are looked for, and which of those places can be trusted to run code from.

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace zerolab {

struct PluginSearch;

/// A directory of the search path and who put it there.
struct SearchPlace {
  std::filesystem::path path;  ///< absolute
  std::string origin;
  bool trusted =
      true;  ///< false: the experiment's own, and the user did not say --trust-plugin-path
};

/// In order: --plugin-path, the experiment's plugin_path, ZEROLAB_PLUGIN_PATH (separated by
/// colons), the user's folder
/// (${XDG_DATA_HOME:-~/.local/share}/zerolab/plugins), and the folder of this installation or build
/// tree. A directory that comes twice keeps its first place.
std::vector<SearchPlace> search_places(const PluginSearch& search);

/// Why code should not be run from a file or folder: others may write to it, or it belongs to
/// neither root nor the current user. One sentence with the command that mends it; empty if it is
/// safe. Follows symbolic links. A folder's write bit for a group does not count if the group is
/// its owner's own (the user's name, no other member): that is the usual umask 002.
std::string unsafe_reason(const std::filesystem::path& path);

/// Whether group `gid` is the private group of user `uid`. Never for group 0, which some systems
/// give to everyone.
bool is_private_group(gid_t gid, uid_t uid);

}  // namespace zerolab
