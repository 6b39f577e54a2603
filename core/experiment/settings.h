#pragma once
// What TOML texts say, as a plain tree: every value with the place that it comes from. Free of
// the TOML library.
//
// Layers: each file read is a layer, bases below the file that extends them, and the command
// line's overrides together are the highest one. Tables of several layers merge key by key;
// anything else is replaced by the later layer.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "zerolab/options.h"

namespace zerolab {

/// A text that settings come from: a file, or one override of the command line.
struct Source {
  std::string label;  ///< for messages: the path as the user gave it, or "override 'a.b=1'"
  std::string
      origin;  ///< for the resolved TOML: the path from the experiment's folder, or "override"
  std::filesystem::path folder;  ///< absolute; relative paths in this source start here
  bool is_override = false;
};

/// A place in a source; lines and columns count from 1.
struct Position {
  size_t source = 0;
  int64_t line = 1, column = 1;
};

struct Setting;
using SettingTable = std::vector<Setting>;

/// A TOML value that no option can take; `what` names it ("a date", "a list of lists").
struct NotAnOption {
  std::string what;
};

/// A key with its value.
struct Setting {
  std::string key;
  Position key_at, value_at;
  size_t layer = 0;
  std::variant<OptionValue, NotAnOption, SettingTable> value;
  std::vector<Setting> earlier;  ///< what lower layers said, the lowest first

  const SettingTable* table() const { return std::get_if<SettingTable>(&value); }
  const OptionValue* option() const { return std::get_if<OptionValue>(&value); }
  /// "an integer", "a table", ... for messages.
  std::string what() const;
};

/// The setting of a key; null if there is none.
const Setting* find_setting(const SettingTable& table, std::string_view key);

/// Lays `upper` over `lower`.
void merge_settings(SettingTable& lower, SettingTable upper);

/// Marks a tree as said by one layer.
void set_layer(SettingTable& table, size_t layer);

/// "scheduler" and "lr" to "scheduler.lr"; no dot before a key of the top level.
std::string dotted_key(std::string_view table, std::string_view key);

}  // namespace zerolab
