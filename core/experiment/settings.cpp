#include "experiment/settings.h"

#include <iterator>
#include <utility>

namespace zerolab {
namespace {

Setting* find_mutable(SettingTable& table, std::string_view key) {
  for (Setting& setting : table) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

/// The later layer replaces the earlier, which stays on record.
void replace(Setting& lower, Setting upper) {
  std::vector<Setting> earlier = std::move(lower.earlier);
  lower.earlier.clear();
  earlier.push_back(std::move(lower));
  earlier.insert(earlier.end(), std::make_move_iterator(upper.earlier.begin()),
                 std::make_move_iterator(upper.earlier.end()));
  upper.earlier = std::move(earlier);
  lower = std::move(upper);
}

}  // namespace

std::string Setting::what() const {
  if (table() != nullptr) return "a table";
  if (const auto* other = std::get_if<NotAnOption>(&value)) return other->what;
  return std::string(option_type_name(static_cast<OptionType>(option()->index())));
}

const Setting* find_setting(const SettingTable& table, std::string_view key) {
  for (const Setting& setting : table) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

void merge_settings(SettingTable& lower, SettingTable upper) {
  for (Setting& setting : upper) {
    Setting* below = find_mutable(lower, setting.key);
    if (below == nullptr) {
      lower.push_back(std::move(setting));
    } else if (below->table() != nullptr && setting.table() != nullptr) {
      merge_settings(std::get<SettingTable>(below->value),
                     std::move(std::get<SettingTable>(setting.value)));
      below->key_at = setting.key_at;
      below->value_at = setting.value_at;
      below->layer = setting.layer;
    } else {
      replace(*below, std::move(setting));
    }
  }
}

void set_layer(SettingTable& table, size_t layer) {
  for (Setting& setting : table) {
    setting.layer = layer;
    if (auto* inner = std::get_if<SettingTable>(&setting.value)) set_layer(*inner, layer);
  }
}

std::string dotted_key(std::string_view table, std::string_view key) {
  std::string dotted(table);
  if (!dotted.empty()) dotted += '.';
  return dotted += key;
}

}  // namespace zerolab
