#pragma once
// A plugin library inside this process.
//
// Owns: nothing that ends. A library is never unloaded: exceptions, threads and deleters of its
// code may outlive every handle. All handles stay reachable to the end of the process.

#include <filesystem>

#include "zerolab/plugin.h"

namespace zerolab {

/// [setup] Loads `file` (absolute; its manifest was checked), every symbol bound now and none shown
/// to others, and returns the table that its entry symbol gives, which must lie in this very file.
/// The second call for a file returns the same table. Errors: PluginError: cannot be loaded (with
/// the missing symbols' readable names), no entry symbol, an entry symbol of another file, a table
/// that makes no sense.
const PluginTable& load_plugin_table(const std::filesystem::path& file);

}  // namespace zerolab
