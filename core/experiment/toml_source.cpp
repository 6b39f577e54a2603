#include "experiment/toml_source.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "experiment/tomlplusplus.h"

namespace zerolab {
namespace {

constexpr std::streamsize kLargestFile =
    4 << 20;  // bytes; a data file given by mistake is not read whole

Position position_of(const toml::source_region& region, size_t source) {
  return {source, static_cast<int64_t>(region.begin.line),
          static_cast<int64_t>(region.begin.column)};
}

using Value = decltype(Setting::value);

Value value_of(const toml::node& node, size_t source);

template <class Item>
Value list_of(const toml::array& array) {
  std::vector<Item> list;
  for (const toml::node& item : array) list.push_back(item.as<Item>()->get());
  return OptionValue(std::move(list));
}

/// Integers among the floats are widened, large ones to the nearest float.
Value list_of_numbers(const toml::array& array) {
  std::vector<double> list;
  for (const toml::node& item : array) {
    const auto* integer = item.as_integer();
    list.push_back(integer != nullptr ? static_cast<double>(integer->get())
                                      : item.as_floating_point()->get());
  }
  return OptionValue(std::move(list));
}

/// A float that is a number. Infinities and NaN mean nothing to any option.
bool is_finite(const toml::node& node) {
  const auto* number = node.as_floating_point();
  return number == nullptr || std::isfinite(number->get());
}

Value array_value(const toml::array& array) {
  bool ints = true, numbers = true, strings = true;
  for (const toml::node& item : array) {
    if (item.is_array()) return NotAnOption{"a list of lists"};
    if (item.is_table()) return NotAnOption{"a list of tables"};
    if (!is_finite(item)) return NotAnOption{"a list with an entry that is not finite"};
    ints = ints && item.is_integer();
    numbers = numbers && item.is_number();
    strings = strings && item.is_string();
  }
  if (ints) return list_of<int64_t>(array);
  if (numbers) return list_of_numbers(array);
  if (strings) return list_of<std::string>(array);
  return NotAnOption{array.is_homogeneous() ? "a list of dates, times or truth values"
                                            : "a list of mixed types"};
}

SettingTable table_value(const toml::table& table, size_t source) {
  SettingTable settings;
  for (const auto& [key, node] : table) {
    Setting setting;
    setting.key = key.str();
    setting.key_at = position_of(key.source(), source);
    setting.value_at = position_of(node.source(), source);
    setting.value = value_of(node, source);
    settings.push_back(std::move(setting));
  }
  return settings;
}

Value value_of(const toml::node& node, size_t source) {
  switch (node.type()) {
    case toml::node_type::table:
      return table_value(*node.as_table(), source);
    case toml::node_type::array:
      return array_value(*node.as_array());
    case toml::node_type::string:
      return OptionValue(node.as_string()->get());
    case toml::node_type::integer:
      return OptionValue(node.as_integer()->get());
    case toml::node_type::floating_point:
      if (!is_finite(node)) {
        return NotAnOption{std::isnan(node.as_floating_point()->get()) ? "nan" : "infinite"};
      }
      return OptionValue(node.as_floating_point()->get());
    case toml::node_type::boolean:
      return OptionValue(node.as_boolean()->get());
    case toml::node_type::date:
      return NotAnOption{"a date"};
    case toml::node_type::time:
      return NotAnOption{"a time"};
    default:
      return NotAnOption{"a date and time"};
  }
}

std::string clause_of(const toml::parse_error& error) {
  std::string clause(error.description());
  if (clause.find("utf-8") != std::string::npos) return "not UTF-8 text";
  clause = "not valid TOML: " + clause;
  if (clause.find("could not determine value type") != std::string::npos) {
    clause += " (a string needs quotes)";
  }
  return clause;
}

}  // namespace

SettingTable parse_toml(std::string_view text, size_t source) {
  try {
    const toml::table root = toml::parse(text);
    return table_value(root, source);
  } catch (const toml::parse_error& error) {
    throw TomlSyntaxError(clause_of(error), position_of(error.source(), source));
  }
}

Setting parse_override_value(std::string_view text, size_t source) {
  Setting setting;
  setting.key_at = setting.value_at = {source, 1, 1};
  try {
    // In a list of one, neither a comment nor a second line of TOML can pass for part of a value.
    const toml::table root = toml::parse("value = [" + std::string(text) + ",]");
    const toml::array* list = root["value"].as_array();
    if (root.size() == 1 && list != nullptr && list->size() == 1) {
      setting.value = value_of(*list->get(0), source);
      return setting;
    }
  } catch (const toml::parse_error& error) {
    if (text.find_first_of("[{\"'") == 0) {
      throw TomlSyntaxError(clause_of(error), setting.key_at);
    }
  }
  setting.value = OptionValue(std::string(text));
  return setting;
}

std::string read_toml_file(const std::filesystem::path& file, size_t source) {
  const auto refuse = [&](const std::string& why) -> void {
    throw TomlSyntaxError(why, {source, 1, 1});
  };
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (status.type() == std::filesystem::file_type::not_found) refuse("there is no such file");
  if (std::filesystem::is_directory(status)) refuse("is a folder, not an experiment file");
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::string text;
  if (stream) {
    text.resize(static_cast<size_t>(kLargestFile) + 1);
    stream.read(text.data(), kLargestFile + 1);
    text.resize(static_cast<size_t>(stream.gcount()));
  }
  if (!stream.is_open() || stream.bad()) {
    refuse(std::string("cannot be read: ") + std::strerror(errno));
  }
  if (text.empty()) refuse("is empty");
  if (text.size() > static_cast<size_t>(kLargestFile)) {
    refuse("is larger than 4 MiB: not an experiment file");
  }
  return text;
}

}  // namespace zerolab
