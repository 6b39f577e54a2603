#pragma once
// A plugin file's manifest beside the host's own: may the file be loaded?
//
// Why before loading: a plugin built on another LibTorch loads without an unresolved symbol and
// then reads tensors as garbage. The values on both sides come from the compiler, through the
// same writer (zerolab/plugin.h).

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiment/manifest_toml.h"

namespace zerolab {

/// The [build] table that this host was compiled with.
const Manifest& host_manifest();

/// The manifest in a file's ELF section; nullopt if the file is a library without one (no plugin).
/// Errors: PluginError, one sentence naming the file.
std::optional<Manifest> read_manifest(const std::filesystem::path& file);

/// What differs between a plugin's manifest and the host's.
struct ManifestDifferences {
  std::vector<std::string> refusing;   ///< a clause a field, with both values
  std::vector<std::string> informing;  ///< compiler, build type, LibTorch's build-id
};

/// SDK ABI: same major, minor not above the host's. LibTorch version, layout, C++11 ABI,
/// _GLIBCXX_DEBUG, sanitizers and the revision of each plugin's kind: equal. A field that is
/// missing differs.
ManifestDifferences compare_manifest(const Manifest& plugin, const Manifest& host);

/// Errors: PluginError if anything differs that refuses (every such field, both values, how to
/// rebuild), or if the manifest offers nothing, an unknown kind, a name that is none, or one plugin
/// twice.
void check_manifest(const std::filesystem::path& file, const Manifest& manifest);

}  // namespace zerolab
