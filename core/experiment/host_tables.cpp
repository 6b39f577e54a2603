#include "experiment/host_tables.h"

#include <optional>
#include <string>
#include <utility>

#include "experiment/batch_sizes.h"
#include "experiment/experiment.h"
#include "experiment/host_keys.h"

namespace zerolab {
namespace {

/// What a key of the top level may be: the host's keys, the host's tables, the kinds.
std::vector<std::string> top_level_words() {
  std::vector<std::string> words;
  for (const OptionField& field : host_tables().front().schema.fields())
    words.push_back(field.name);
  for (const HostTable& table : host_tables()) {
    if (!table.name.empty()) words.push_back(table.name);
  }
  for (Kind kind : kKinds) words.emplace_back(kind_name(kind));
  return words;
}

std::string unknown_top_level(const std::string& word, const ChosenSchemas& schemas) {
  if (const std::string place = place_elsewhere(word, "", schemas); !place.empty()) {
    return "is no key of the top level" + place;
  }
  const std::vector<std::string> words = top_level_words();
  const std::string near = nearest(word, words);
  const OptionSchema& schema = host_tables().front().schema;
  if (!near.empty()) {
    const OptionField* field = schema.find(near);
    const std::string what = field != nullptr ? describe_field(*field) : "a table";
    return "is no key of the top level; nearest valid key '" + near + "': " + what;
  }
  std::string list;
  for (const std::string& valid : words) list += (list.empty() ? "" : ", ") + valid;
  return "is no key of the top level; valid keys: " + list;
}

/// The known keys of a host table; reports the others. The top level also holds tables, which
/// others read.
GivenOptions known_keys(const HostTable& host, const SettingTable& settings,
                        const ChosenSchemas& schemas, ProblemReport& report) {
  GivenOptions given;
  for (const Setting& setting : settings) {
    const std::string key = dotted_key(host.name, setting.key);
    if (host.schema.find(setting.key) != nullptr) {
      given[setting.key] = {&setting, key};
    } else if (!host.name.empty()) {
      const std::string place = place_elsewhere(setting.key, host.name, schemas);
      report.add(setting.key_at, key,
                 "is no key of [" + host.name + "]" +
                     (place.empty() ? suggest_key(setting.key, host.schema, host.name) : place));
    } else {
      bool is_table = kind_from_name(setting.key).has_value();
      for (const HostTable& table : host_tables()) is_table = is_table || table.name == setting.key;
      if (!is_table) report.add(setting.key_at, key, unknown_top_level(setting.key, schemas));
    }
  }
  return given;
}

/// The experiment is called as its file if it does not say otherwise.
OptionValues computed_name(const ExperimentTree& tree, const GivenOptions& given,
                           ProblemReport& report) {
  if (given.count("name") != 0) return {};
  const std::string stem = tree.file.stem().string();
  if (!check_name(stem).empty()) {
    report.add({}, "name",
               "is missing, and the file's name '" + stem +
                   "' cannot stand in: it has more than letters, digits, "
                   "'.', '_' and '-', or is too long; add name = \"NAME\"");
    return {{"name", "unnamed"}};
  }
  return {{"name", stem}};
}

/// Computes the batch sizes that are not given. `at`: the [batch] table, for what is missing.
void complete_batch(CheckedTable& batch, const GivenOptions& given, Position at, int num_ranks,
                    ProblemReport& report) {
  constexpr const char* kMicro = "micro_batch_size";
  constexpr const char* kAccumulation = "gradient_accumulation_steps";
  constexpr const char* kTotal = "total_batch_size";
  const auto said = [&](const char* name) -> std::optional<int64_t> {
    if (given.count(name) == 0) return std::nullopt;
    return std::get<int64_t>(batch.values.at(name).value);
  };
  BatchSizes sizes{said(kMicro), said(kAccumulation), said(kTotal)};
  const bool accumulation_follows = sizes.micro && sizes.total;
  if (const auto problem = complete_batch_sizes(sizes, num_ranks)) {
    const bool given_here = given.count(problem->key) != 0;
    report.add(given_here ? batch.values.at(problem->key).at : at,
               dotted_key("batch", problem->key), problem->message);
    return;
  }
  const auto complete = [&](const char* name, int64_t value, const char* origin) {
    if (given.count(name) == 0) batch.values[name] = {value, origin, at};
  };
  complete(kMicro, *sizes.micro, "computed");
  complete(kAccumulation, *sizes.accumulation, accumulation_follows ? "computed" : "default");
  complete(kTotal, *sizes.total, "computed");
}

}  // namespace

std::vector<CheckedTable> check_host_tables(const ExperimentTree& tree,
                                            const ChosenSchemas& schemas, int num_ranks,
                                            ProblemReport& report) {
  static const SettingTable nothing;
  std::vector<CheckedTable> checked;
  for (const HostTable& host : host_tables()) {
    const SettingTable* settings = &tree.root;
    Position at;
    if (!host.name.empty()) {
      const Setting* table = find_setting(tree.root, host.name);
      settings = table != nullptr ? table->table() : &nothing;
      if (table != nullptr) at = table->key_at;
      if (settings == nullptr) {
        report.add(table->value_at, host.name, "must be a table, is " + table->what());
        checked.emplace_back();
        continue;
      }
    }
    const GivenOptions given = known_keys(host, *settings, schemas, report);
    const OptionValues computed =
        host.name.empty() ? computed_name(tree, given, report) : OptionValues();
    checked.push_back(
        check_options({host.schema, host.name, at, given, computed}, tree.sources, report));
    if (host.name.empty()) checked.back().values.erase("extends");  // done by reading the files
    if (host.name == "batch" && checked.back().sound)
      complete_batch(checked.back(), given, at, num_ranks, report);
  }
  return checked;
}

}  // namespace zerolab
