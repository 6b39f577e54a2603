#include "experiment/manifest_toml.h"

#include <optional>

#include "zerolab/error.h"

#include "experiment/tomlplusplus.h"

namespace zerolab {
namespace {

[[noreturn]] void damaged(const std::string& what) {
  throw PluginError("its manifest is damaged: " + what);
}

/// Texts are shown to the user, perhaps on a terminal.
const std::string& shown(const std::string& text) {
  for (unsigned char c : text) {
    if (c < 32 || c == 127) damaged("a text in it holds a control character");
  }
  return text;
}

std::string text_of(const toml::table& table, std::string_view key) {
  const std::optional<std::string> value = table[key].value_exact<std::string>();
  if (!value) damaged("a [[plugin]] table has no string '" + std::string(key) + "'");
  return shown(*value);
}

Manifest::Plugin read_plugin(const toml::table& table) {
  Manifest::Plugin plugin;
  plugin.id = text_of(table, "id");
  plugin.version = text_of(table, "version");
  plugin.summary = text_of(table, "summary");
  plugin.source = text_of(table, "source");
  const std::optional<int64_t> revision = table["kind_revision"].value_exact<int64_t>();
  if (!revision) damaged("a [[plugin]] table has no integer 'kind_revision'");
  plugin.kind_revision = *revision;
  return plugin;
}

void read_build(const toml::table& build, Manifest& manifest) {
  for (const auto& [key, node] : build) {
    std::string& value = manifest.build[shown(std::string(key.str()))];
    if (const auto* text = node.as_string()) {
      value = shown(text->get());
    } else if (const auto* flag = node.as_boolean()) {
      value = flag->get() ? "true" : "false";
    } else if (const auto* number = node.as_integer()) {
      value = std::to_string(number->get());
    } else {
      damaged("[build] has a '" + std::string(key.str()) + "' that is no text, number or flag");
    }
  }
}

}  // namespace

Manifest parse_manifest(std::string_view text) {
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& error) {
    damaged("line " + std::to_string(error.source().begin.line) + ": " +
            std::string(error.description()));
  }
  Manifest manifest;
  const toml::table* build = root["build"].as_table();
  if (build == nullptr) damaged("it has no [build] table");
  read_build(*build, manifest);
  if (!root.contains("plugin")) return manifest;
  const toml::array* plugins = root["plugin"].as_array();
  if (plugins == nullptr) damaged("'plugin' is no list of tables");
  for (const toml::node& node : *plugins) {
    const toml::table* table = node.as_table();
    if (table == nullptr) damaged("'plugin' is no list of tables");
    manifest.plugins.push_back(read_plugin(*table));
  }
  return manifest;
}

}  // namespace zerolab
