#include "experiment/result_changes.h"

#include "experiment/host_keys.h"
#include "experiment/settings.h"

namespace zerolab {
namespace {

/// Sequences of a step may be cut otherwise, their total may not change.
bool is_cut_of_batch(const std::string& key) {
  return key == "batch.micro_batch_size" || key == "batch.gradient_accumulation_steps";
}

/// A path that was not given before, or no longer is, is no file that has moved.
bool has_moved(const OptionField& field, const OptionValue& was, const OptionValue& is) {
  if (!field.is_path) return false;
  const auto *were = std::get_if<std::vector<std::string>>(&was),
             *are = std::get_if<std::vector<std::string>>(&is);
  if (were != nullptr && are != nullptr) return were->size() == are->size();
  const OptionValue none = std::string();
  return was != none && is != none;
}

void compare_table(const std::string& table, const OptionSchema& schema, const OptionValues& before,
                   const OptionValues& after, ExperimentChanges& changes) {
  for (const OptionField& field : schema.fields()) {
    const std::string key = dotted_key(table, field.name);
    if (!field.affects_results || is_cut_of_batch(key)) continue;
    const auto was = before.find(field.name), is = after.find(field.name);
    if (was == before.end() || is == after.end() || was->second == is->second) continue;
    const bool moved = has_moved(field, was->second, is->second);
    auto& list = moved ? changes.paths : changes.results;
    list.push_back(key + " is " + to_toml(is->second) + ", was " + to_toml(was->second));
  }
}

}  // namespace

ExperimentChanges compare_experiments(const Experiment& before, const Experiment& after,
                                      PluginCatalogue& catalogue) {
  ExperimentChanges changes;
  for (const HostTable& table : host_tables()) {
    const auto was = before.host_values.find(table.name), is = after.host_values.find(table.name);
    if (was == before.host_values.end() || is == after.host_values.end()) continue;
    compare_table(table.name, table.schema, was->second, is->second, changes);
  }
  for (const Kind kind : kKinds) {
    const std::string table(kind_name(kind));
    const PluginChoice &was = before.plugin(kind), &is = after.plugin(kind);
    if (was.name != is.name && kind != Kind::kSharding) {
      changes.results.push_back(table + ".plugin is " + to_toml(is.name) + ", was " +
                                to_toml(was.name));
      continue;
    }
    const OptionSchema* schema = catalogue.schema(kind, is.name);
    if (schema != nullptr) compare_table(table, *schema, was.options, is.options, changes);
  }
  return changes;
}

}  // namespace zerolab
