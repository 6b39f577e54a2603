#pragma once
// Loads a plugin that this build made, for its test: without the host, so that a plugin's test
// fails for the plugin only. Errors: std::runtime_error with what is wrong (file, symbol, option).
// Owns: libraries stay loaded to the end.

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include "zerolab/plugin.h"

/// The entry of plugin `id` in its own library.
inline const zerolab::PluginEntry& plugin_entry(const std::string& id) {
  std::string file = id;
  file[file.find('/')] = '_';
  file = ZEROLAB_TEST_PLUGIN_DIR "/zerolab_" + file + ".so";
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto entry_point =
      reinterpret_cast<zerolab::PluginEntryPoint>(dlsym(library, zerolab::kPluginSymbol));
  if (entry_point == nullptr) throw std::runtime_error(dlerror());
  const zerolab::PluginTable& table = *entry_point();
  for (size_t i = 0; i < table.num_entries; ++i) {
    if (table.entries[i].id == id) return table.entries[i];
  }
  throw std::runtime_error(file + " does not offer " + id);
}

/// What is wrong with these options, as the host would find it: "option: sentence" for each
/// problem.
inline std::vector<std::string> option_problems(const std::string& id,
                                                const zerolab::OptionValues& given,
                                                zerolab::OptionValues* resolved = nullptr) {
  const zerolab::OptionSchema& schema = plugin_entry(id).schema();
  std::vector<std::string> found;
  zerolab::OptionValues values = schema.defaults();
  for (auto [name, value] : given) {
    const zerolab::OptionField* field = schema.find(name);
    if (field == nullptr) {
      found.push_back(name + ": unknown");
      continue;
    }
    const std::string problem = zerolab::OptionSchema::check_value(*field, value);
    if (!problem.empty()) found.push_back(name + ": " + problem);
    values.insert_or_assign(name, value);
  }
  for (const zerolab::OptionField& field : schema.fields()) {
    if (field.required && !given.contains(field.name)) found.push_back(field.name + ": required");
  }
  if (found.empty()) {
    zerolab::Problems problems;
    schema.check(values, problems);
    for (const auto& problem : problems.list()) {
      found.push_back(problem.option + ": " + problem.message);
    }
  }
  if (resolved != nullptr) *resolved = std::move(values);
  return found;
}

/// A plugin with these options; the rest at their defaults.
template <class Interface>
std::unique_ptr<Interface> load_plugin(const std::string& id,
                                       const zerolab::OptionValues& given = {}) {
  zerolab::OptionValues values;
  const std::vector<std::string> problems = option_problems(id, given, &values);
  if (!problems.empty()) throw std::runtime_error(id + ": " + problems.front());
  return std::unique_ptr<Interface>(static_cast<Interface*>(plugin_entry(id).create(values)));
}
