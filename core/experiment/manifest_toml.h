#pragma once
// A plugin's manifest, from its TOML text to a plain struct. The text is untrusted: it comes
// from a file that was not loaded.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace zerolab {

/// A manifest as it is written; nothing in it has been compared with anything yet.
struct Manifest {
  struct Plugin {
    std::string id, version, summary, source;
    int64_t kind_revision = 0;
  };
  std::map<std::string, std::string> build;  ///< the [build] table; booleans as "true" and "false"
  std::vector<Plugin> plugins;               ///< the [[plugin]] tables, in order
};

/// Errors: PluginError for text that is not TOML, has no [build] table, or has tables of the wrong
/// shape; the message is a clause without the file's name ("its manifest is damaged: ...").
Manifest parse_manifest(std::string_view text);

}  // namespace zerolab
