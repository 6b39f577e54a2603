// zerolab plugins list, zerolab plugins inspect: what is installed, and what it can be told.

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "zerolab/error.h"

#include "host/option_text.h"
#include "host/plugin_host.h"
#include "output.h"
#include "verbs.h"

namespace zerolab {
namespace {

using Json = nlohmann::ordered_json;

struct PluginsFlags {
  PluginFlags plugins;
  std::string what;  ///< KIND/NAME or a file
  bool json = false, toml = false;
};

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json record_json(const PluginRecord& record) {
  return {{"kind", kind_name(record.kind)}, {"name", record.name},
          {"version", record.version},      {"summary", record.summary},
          {"source", record.source},        {"file", record.file.string()}};
}

/// For a script: by OptionType.
constexpr std::array<const char*, 7> kTypeWords = {"bool",     "int",        "float",      "string",
                                                   "int_list", "float_list", "string_list"};

Json option_json(const OptionField& field) {
  const auto bound = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  Json json = {{"name", field.name},
               {"type", kTypeWords.at(static_cast<size_t>(field.type))},
               {"doc", field.doc},
               {"unit", field.unit},
               {"required", field.required},
               {"default", nullptr},
               {"minimum", bound(field.minimum)},
               {"minimum_exclusive", field.minimum_exclusive},
               {"maximum", bound(field.maximum)},
               {"maximum_exclusive", field.maximum_exclusive},
               {"allowed", field.allowed},
               {"path", field.is_path},
               {"size", field.is_size},
               {"affects_results", field.affects_results}};
  if (!field.required) {
    json["default"] =
        std::visit([](const auto& value) { return Json(value); }, field.default_value);
  }
  if (field.list_length) json["list_length"] = *field.list_length;
  return json;
}

// --- list ---------------------------------------------------------------------------------------

std::string list_text(const PluginHost& host) {
  std::vector<std::vector<std::string>> rows = {{"KIND", "NAME", "VERSION", "SUMMARY", "FILE"}};
  for (const PluginRecord& record : host.records()) {
    rows.push_back({std::string(kind_name(record.kind)), record.name, record.version,
                    record.summary, record.file.string()});
  }
  std::string text = host.records().empty() ? "no plugins are installed\n" : table(rows);
  std::string refused, notes, places;
  for (const SearchedDirectory& directory : host.searched()) {
    places += "  " + directory.path.string() + " (" + directory.origin +
              (directory.exists ? "" : ", missing") + ")\n";
    for (const std::string& sentence : directory.refused) refused += "  " + sentence + "\n";
    for (const std::string& note : directory.notes) notes += "  " + note + "\n";
  }
  if (!refused.empty()) text += "\nrefused:\n" + refused;
  if (!notes.empty()) text += "\nnotes:\n" + notes;
  return text + "\nsearched:\n" + places;
}

Json list_json(const PluginHost& host) {
  Json json = {{"plugins", Json::array()}, {"searched", Json::array()}};
  for (const PluginRecord& record : host.records()) json["plugins"].push_back(record_json(record));
  for (const SearchedDirectory& directory : host.searched()) {
    json["searched"].push_back({{"path", directory.path.string()},
                                {"origin", directory.origin},
                                {"exists", directory.exists},
                                {"refused", directory.refused},
                                {"notes", directory.notes}});
  }
  return json;
}

void list(const PluginsFlags& flags) {
  const PluginHost host(plugin_search(flags.plugins));
  print(flags.json ? dump(list_json(host)) : list_text(host));
}

// --- inspect ------------------------------------------------------------------------------------

std::string inspect_text(const PluginRecord& record, const OptionSchema& schema) {
  std::vector<std::vector<std::string>> rows = {
      {record.id(), record.version + "  " + record.summary}, {"file", record.file.string()}};
  if (!record.source.empty()) rows.push_back({"source", record.source});
  for (const auto& [key, value] : record.build) rows.push_back({key, value});
  std::string text = table(rows);
  if (schema.fields().empty()) return text + "\nno options\n";
  rows = {{"OPTION", "DEFAULT", "TYPE", "UNIT", "ALLOWED", "MEANING"}};
  for (const OptionField& field : schema.fields()) {
    rows.push_back({field.name, field.required ? "(required)" : to_toml(field.default_value),
                    std::string(option_type_name(field.type)), field.unit, option_range(field),
                    field.doc});
  }
  return text + "\n" + table(rows);
}

Json inspect_json(const PluginRecord& record, const OptionSchema& schema) {
  Json json = record_json(record);
  json["build"] = record.build;
  json["options"] = Json::array();
  for (const OptionField& field : schema.fields()) json["options"].push_back(option_json(field));
  return json;
}

/// The plugin that `id` names. Errors: PluginError if it is not installed.
PluginRecord find_installed(const PluginsFlags& flags, Kind kind, const std::string& name) {
  PluginHost host(plugin_search(flags.plugins));
  const PluginRecord* const record = host.find(kind, name);
  if (record == nullptr) throw PluginError(host.missing_message(kind, name));
  return *record;
}

/// KIND/NAME is looked for in the search path; anything else is a file.
std::vector<PluginRecord> find_records(const PluginsFlags& flags) {
  const size_t slash = flags.what.find('/');
  const std::string name = slash == std::string::npos ? "" : flags.what.substr(slash + 1);
  const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(), detail::is_name_char);
  const std::optional<Kind> kind = kind_from_name(flags.what.substr(0, slash));
  if (kind && is_name) return {find_installed(flags, *kind, name)};
  std::error_code failed;
  if (!std::filesystem::exists(flags.what, failed)) {
    throw ConfigError("'" + flags.what +
                      "' is neither KIND/NAME (kinds: model, data, optimizer, sharding, precision, "
                      "scheduler) nor a file; zerolab plugins list shows what is installed.");
  }
  return PluginHost::read_file(flags.what);
}

void inspect(const PluginsFlags& flags) {
  std::string text;
  Json json = Json::array();
  for (const PluginRecord& record : find_records(flags)) {
    const OptionSchema& schema = PluginHost::describe(record);
    if (flags.json) {
      json.push_back(inspect_json(record, schema));
    } else {
      text += text.empty() ? "" : "\n";
      text += flags.toml ? skeleton_toml(record.kind, record.name, schema)
                         : inspect_text(record, schema);
    }
  }
  if (flags.json) text = dump(json.size() == 1 ? json.front() : json);
  print(text);
}

}  // namespace

void add_plugins(CLI::App& app, CommandLine&) {
  CLI::App* const verb = app.add_subcommand("plugins", "Show installed plugins and their options");
  verb->require_subcommand(0, 1);
  const auto flags = std::make_shared<PluginsFlags>();

  CLI::App* const list_verb =
      verb->add_subcommand("list", "List plugins, and the files that were refused and why");
  add_plugin_flags(*list_verb, flags->plugins);
  list_verb->add_flag("--json", flags->json, "for a script");
  list_verb->callback([flags] { list(*flags); });

  CLI::App* const inspect_verb =
      verb->add_subcommand("inspect", "Show one plugin: its file, build and options");
  inspect_verb->add_option("plugin", flags->what, "KIND/NAME, or a file")
      ->type_name("KIND/NAME|FILE")
      ->required();
  add_plugin_flags(*inspect_verb, flags->plugins);
  CLI::Option* const json = inspect_verb->add_flag("--json", flags->json, "for a script");
  inspect_verb
      ->add_flag("--toml", flags->toml, "a table with every option, to paste into an experiment")
      ->excludes(json);
  inspect_verb->callback([flags] { inspect(*flags); });

  verb->footer(
      "Examples:\n"
      "  zerolab plugins list\n"
      "  zerolab plugins inspect sharding/NAME\n"
      "  zerolab plugins inspect ./my_plugin.so --toml");
  verb->callback([verb] {
    if (verb->get_subcommands().empty()) {
      throw ConfigError(
          "zerolab plugins needs a verb: list or inspect; see: zerolab plugins --help.");
    }
  });
}

}  // namespace zerolab
