#include <algorithm>

#include "experiment/experiment.h"
#include "known_keys.h"
#include "translation.h"

namespace zerolab {
namespace {

/// Whether `table`.enabled, DeepSpeed's switch of a feature, is on. Off if it is not given.
bool is_enabled(const DeepSpeedConfig& config, const std::string& table) {
  const Json* const enabled = config.source().find(table + ".enabled");
  return enabled != nullptr && *enabled != false && !enabled->is_null();
}

void judge_known(DeepSpeedConfig& config, const std::string& path, const KnownKey& known) {
  const Json& value = *config.source().find(path);
  const std::string neutral = known.neutral, table = known.path;
  if (value.is_null()) {
    config.without_effect(path, "null is as if the key were not there");
  } else if (config.is_auto(path)) {
    config.not_honoured(
        path, "\"auto\" is filled in by Hugging Face's Trainer; " + std::string(known.why));
  } else if (neutral == "enabled") {
    if (is_enabled(config, table)) {
      config.not_honoured(path, known.why);
    } else {
      config.without_effect(path, table + " is not enabled");
    }
  } else if (!neutral.empty() && value == Json::parse(neutral)) {
    config.without_effect(path, "what this value asks for is so here anyway");
  } else {
    config.not_honoured(path, known.why);
  }
}

/// "; did you mean ..." for the first part of a path that DeepSpeed does not know.
std::string suggestion(const std::string& path) {
  std::string table;
  for (size_t start = 0; start < path.size();) {
    const size_t end = std::min(path.find('.', start), path.size());
    const std::string name = path.substr(start, end - start);
    const std::vector<std::string> names = known_names(table);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      const std::string near = nearest(name, names);
      if (!near.empty()) return "; did you mean '" + join_path(table, near) + "'?";
      const std::vector<std::string> tables = tables_with(name);
      if (tables.size() == 1) {
        return tables[0].empty() ? "; it belongs to the top level"
                                 : "; it belongs in '" + tables[0] + "'";
      }
      return "";
    }
    table = path.substr(0, end);
    start = end + 1;
  }
  return "";
}

}  // namespace

void translate_rest(DeepSpeedConfig& config) {
  for (const std::string& path : config.source().leaves()) {
    if (config.has_verdict(path)) continue;
    const KnownKey* const known = find_known(path);
    if (known != nullptr) {
      judge_known(config, path, *known);
      continue;
    }
    const Json& value = *config.source().find(path);
    const bool is_table = !known_names(path).empty();
    const auto translated = translated_keys();
    if (is_table && (value.is_null() || value.is_object())) {
      config.without_effect(path, "asks for nothing");
    } else if (std::find(translated.begin(), translated.end(), path) != translated.end()) {
      // Known to DeepSpeed, but not beside the type that the table names.
      config.not_honoured(path, "DeepSpeed does not read it beside the given type");
    } else {
      config.not_honoured(path, "is no key that DeepSpeed documents" + suggestion(path));
    }
  }
}

}  // namespace zerolab
