#include "experiment/plugin_tables.h"

#include <algorithm>
#include <utility>

#include "zerolab/error.h"

#include "experiment/host_keys.h"

namespace zerolab {
namespace {

constexpr std::string_view kPlugin = "plugin";

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "none" : text;
}

/// The choice of a kind's plugin, made before any option is looked at.
struct Choice {
  const Setting* table = nullptr;   ///< the kind's table; null if there is none or it is no table
  const Setting* plugin = nullptr;  ///< the choice; null if there is none
  std::string name;
  const OptionSchema* schema = nullptr;  ///< null if missing or refused
};

/// Checks one kind's table.
class KindCheck {
 public:
  KindCheck(Kind kind, const ExperimentTree& tree, PluginCatalogue& catalogue,
            ProblemReport& report)
      : kind_(kind), word_(kind_name(kind)), tree_(tree), catalogue_(catalogue), report_(report) {}

  Choice choose();
  KindTable check(const Choice& choice, const ChosenSchemas& chosen);

 private:
  const OptionSchema* installed_schema(std::string_view name);
  void check_named_table(const Setting& named, const Choice& choice);
  void check_option(const Setting& setting, const Choice& choice, const ChosenSchemas& chosen);
  bool set_aside(const Setting& setting, const Choice& choice);
  void give(const Setting& setting, std::string key);
  void keep_unused(const Setting& setting, const std::string& key, const std::string& plugin,
                   const OptionField& field);
  std::string unknown_option(const Setting& setting, const Choice& choice,
                             const ChosenSchemas& chosen);

  Kind kind_;
  std::string word_;
  const ExperimentTree& tree_;
  PluginCatalogue& catalogue_;
  ProblemReport& report_;
  KindTable table_;
  GivenOptions given_;
};

Choice KindCheck::choose() {
  Choice choice;
  const Setting* table = find_setting(tree_.root, word_);
  const std::string key = dotted_key(word_, kPlugin);
  const auto installed = [&] { return "; installed: " + joined(catalogue_.names(kind_)); };
  if (table == nullptr) {
    report_.add({}, key, "is missing: add [" + word_ + "] with plugin = \"NAME\"" + installed());
    return choice;
  }
  if (table->table() == nullptr) {
    report_.add(table->value_at, word_,
                "must be a table with plugin = \"NAME\", is " + table->what() + installed());
    return choice;
  }
  choice.table = table;
  choice.plugin = find_setting(*table->table(), kPlugin);
  if (choice.plugin == nullptr) {
    report_.add(table->key_at, key, "is missing: add plugin = \"NAME\"" + installed());
    return choice;
  }
  const OptionValue* value = choice.plugin->option();
  const auto* name = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  if (name == nullptr) {
    report_.add(choice.plugin->value_at, key,
                "must be a string, is " + choice.plugin->what() + installed());
    return choice;
  }
  choice.name = *name;
  try {
    choice.schema = catalogue_.schema(kind_, choice.name);
    if (choice.schema == nullptr) {
      report_.add_plugin(choice.plugin->value_at, key,
                         catalogue_.missing_message(kind_, choice.name));
    }
  } catch (const PluginError& error) {
    report_.add_plugin(choice.plugin->value_at, key, error.what());
  }
  return choice;
}

/// Null for a plugin that is not there or does not load: what it would take is then nobody's
/// business.
const OptionSchema* KindCheck::installed_schema(std::string_view name) {
  const std::vector<std::string> names = catalogue_.names(kind_);
  if (std::find(names.begin(), names.end(), name) == names.end()) return nullptr;
  try {
    return catalogue_.schema(kind_, name);
  } catch (const PluginError&) {
    return nullptr;
  }
}

KindTable KindCheck::check(const Choice& choice, const ChosenSchemas& chosen) {
  if (choice.table == nullptr) return {};
  table_.schema = choice.schema;
  table_.plugin = choice.name;
  if (choice.plugin != nullptr)
    table_.plugin_origin = origin_text(tree_.sources, choice.plugin->value_at);
  for (const Setting& setting : *choice.table->table()) {
    if (setting.key == kPlugin) continue;
    const bool is_option = choice.schema != nullptr && choice.schema->find(setting.key) != nullptr;
    if (setting.table() != nullptr && !is_option) {
      check_named_table(setting, choice);
    } else {
      check_option(setting, choice, chosen);
    }
  }
  if (choice.schema == nullptr) return std::move(table_);
  table_.options = check_options({*choice.schema, word_, choice.table->key_at, given_, {}},
                                 tree_.sources, report_);
  return std::move(table_);
}

/// [kind.NAME]: checked if NAME is installed, used if it is chosen.
void KindCheck::check_named_table(const Setting& named, const Choice& choice) {
  const bool is_chosen = named.key == choice.name;
  const std::string prefix = dotted_key(word_, named.key);
  const OptionSchema* schema = is_chosen ? choice.schema : installed_schema(named.key);
  if (schema == nullptr) {
    if (!is_chosen) table_.not_installed.push_back(named.key);
    return;
  }
  for (const Setting& setting : *named.table()) {
    const std::string key = dotted_key(prefix, setting.key);
    const OptionField* field = schema->find(setting.key);
    if (setting.key == kPlugin) {
      report_.add(setting.key_at, key,
                  "plugin is a reserved word: choose the plugin in [" + word_ + "]");
    } else if (field == nullptr) {
      report_.add(
          setting.key_at, key,
          "is no option of " + word_ + " " + named.key + suggest_key(setting.key, *schema, prefix));
    } else if (is_chosen) {
      give(setting, key);
    } else {
      keep_unused(setting, key, named.key, *field);
    }
  }
}

void KindCheck::check_option(const Setting& setting, const Choice& choice,
                             const ChosenSchemas& chosen) {
  if (choice.schema == nullptr) return;
  if (choice.schema->find(setting.key) != nullptr) {
    give(setting, dotted_key(word_, setting.key));
  } else if (!set_aside(setting, choice)) {
    report_.add(setting.key_at, dotted_key(word_, setting.key),
                unknown_option(setting, choice, chosen));
  }
}

/// A place inside [kind.NAME].
bool is_specific(std::string_view key) {
  return std::count(key.begin(), key.end(), '.') > 1;
}

/// Of two places that say one option, the later layer wins; within one layer the more specific
/// place.
bool outranks(size_t layer, std::string_view key, size_t other_layer) {
  return layer != other_layer ? layer > other_layer : is_specific(key);
}

void KindCheck::give(const Setting& setting, std::string key) {
  GivenOption& given = given_[setting.key];
  if (given.setting != nullptr && !outranks(setting.layer, key, given.setting->layer)) return;
  given = {&setting, std::move(key)};
}

/// True if an earlier layer, which chose another plugin, may have meant the setting for that one.
bool KindCheck::set_aside(const Setting& setting, const Choice& choice) {
  if (setting.layer >= choice.plugin->layer) return false;
  const std::vector<Setting>& earlier = choice.plugin->earlier;
  for (auto choice_before = earlier.rbegin(); choice_before != earlier.rend(); ++choice_before) {
    const OptionValue* value = choice_before->option();
    const auto* name = value != nullptr ? std::get_if<std::string>(value) : nullptr;
    if (name == nullptr || choice_before->layer >= choice.plugin->layer || *name == choice.name)
      continue;
    const OptionSchema* schema = installed_schema(*name);
    if (schema == nullptr) {
      table_.not_installed.push_back(*name);
      return true;
    }
    if (const OptionField* field = schema->find(setting.key)) {
      keep_unused(setting, dotted_key(word_, setting.key), *name, *field);
      return true;
    }
  }
  return false;
}

void KindCheck::keep_unused(const Setting& setting, const std::string& key,
                            const std::string& plugin, const OptionField& field) {
  std::optional<OptionValue> value = check_setting({&setting, key}, field, tree_.sources, report_);
  if (!value) return;
  UnusedOption option{plugin, setting.key, std::move(*value),
                      origin_text(tree_.sources, setting.value_at), setting.layer};
  for (UnusedOption& other : table_.unused) {
    if (other.plugin != plugin || other.option != setting.key) continue;
    if (outranks(setting.layer, key, other.layer)) other = std::move(option);
    return;
  }
  table_.unused.push_back(std::move(option));
}

std::string KindCheck::unknown_option(const Setting& setting, const Choice& choice,
                                      const ChosenSchemas& chosen) {
  std::vector<std::string> owners;
  for (const std::string& name : catalogue_.names(kind_)) {
    const OptionSchema* schema = name != choice.name ? installed_schema(name) : nullptr;
    if (schema != nullptr && schema->find(setting.key) != nullptr) owners.push_back(name);
  }
  const std::string not_here = "is no option of " + word_ + " " + choice.name;
  if (!owners.empty()) {
    return not_here + ", the chosen one, but of " + joined(owners) + "; it would go into [" +
           word_ + "." + owners.front() + "], where it waits until " + owners.front() +
           " is chosen";
  }
  if (const std::string place = place_elsewhere(setting.key, word_, chosen); !place.empty())
    return not_here + place;
  return not_here + suggest_key(setting.key, *choice.schema, word_);
}

}  // namespace

std::string place_elsewhere(std::string_view key, std::string_view table,
                            const ChosenSchemas& schemas) {
  for (const HostTable& host : host_tables()) {
    if (host.name == table || host.schema.find(key) == nullptr) continue;
    return host.name.empty() ? "; it belongs to the top level, before the first table"
                             : "; it belongs in [" + host.name + "]";
  }
  for (Kind kind : kKinds) {
    const OptionSchema* schema = schemas[static_cast<size_t>(kind)];
    if (kind_name(kind) == table || schema == nullptr || schema->find(key) == nullptr) continue;
    return "; it belongs in [" + std::string(kind_name(kind)) + "]";
  }
  return {};
}

KindTables check_kind_tables(const ExperimentTree& tree, PluginCatalogue& catalogue,
                             ProblemReport& report) {
  std::vector<KindCheck> checks;
  std::array<Choice, kKinds.size()> choices;
  ChosenSchemas schemas{};
  for (Kind kind : kKinds) {
    const auto i = static_cast<size_t>(kind);
    checks.emplace_back(kind, tree, catalogue, report);
    choices[i] = checks.back().choose();
    schemas[i] = choices[i].schema;
  }
  KindTables tables;
  for (size_t i = 0; i < checks.size(); ++i) tables[i] = checks[i].check(choices[i], schemas);
  return tables;
}

}  // namespace zerolab
