#include "zerolab/options.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "zerolab/error.h"

namespace zerolab {
namespace {

/// Shortest text that reads back as the same double, with a point or an exponent, as TOML asks of a
/// float.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 32 || u == 127) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04X", u);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string text_of(bool value) {
  return value ? "true" : "false";
}
std::string text_of(int64_t value) {
  return std::to_string(value);
}
std::string text_of(double value) {
  return float_text(value);
}
std::string text_of(const std::string& value) {
  return quoted(value);
}
template <class T>
std::string text_of(const std::vector<T>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) out += (i != 0 ? ", " : "") + text_of(values[i]);
  return out + "]";
}

/// A bound as the option's own type would be written.
std::string bound_text(const OptionField& field, double bound) {
  const bool whole = field.type == OptionType::kInt || field.type == OptionType::kIntList;
  return whole ? std::to_string(static_cast<int64_t>(bound)) : float_text(bound);
}

std::string range_text(const OptionField& field) {
  std::string text;
  if (field.minimum) {
    text += (field.minimum_exclusive ? "above " : "at least ") + bound_text(field, *field.minimum);
  }
  if (field.maximum) {
    if (!text.empty()) text += " and ";
    text += (field.maximum_exclusive ? "below " : "at most ") + bound_text(field, *field.maximum);
  }
  return text;
}

bool in_range(const OptionField& field, double value) {
  if (std::isnan(value)) return !field.minimum && !field.maximum;
  if (field.minimum && (field.minimum_exclusive ? value <= *field.minimum : value < *field.minimum))
    return false;
  if (field.maximum && (field.maximum_exclusive ? value >= *field.maximum : value > *field.maximum))
    return false;
  return true;
}

std::string check_number(const OptionField& field, double value, const std::string& shown) {
  if (in_range(field, value)) return {};
  return "must be " + range_text(field) + ", is " + shown;
}

std::string check_word(const OptionField& field, const std::string& word) {
  if (field.allowed.empty()) return {};
  for (const std::string& allowed : field.allowed) {
    if (word == allowed) return {};
  }
  std::string list;
  for (size_t i = 0; i < field.allowed.size(); ++i) {
    if (i != 0) list += i + 1 == field.allowed.size() ? " or " : ", ";
    list += quoted(field.allowed[i]);
  }
  return "must be " + list + ", is " + quoted(word);
}

/// Ints where floats are wanted, one string where a list of them is, empty lists of any type.
void widen(const OptionField& field, OptionValue& value) {
  if (field.type == OptionType::kFloat && std::holds_alternative<int64_t>(value)) {
    value = static_cast<double>(std::get<int64_t>(value));
  } else if (field.type == OptionType::kFloatList &&
             std::holds_alternative<std::vector<int64_t>>(value)) {
    const auto ints = std::get<std::vector<int64_t>>(value);
    value = std::vector<double>(ints.begin(), ints.end());
  } else if (field.type == OptionType::kStringList && std::holds_alternative<std::string>(value)) {
    value = std::vector<std::string>{std::get<std::string>(value)};
  } else if (field.type == OptionType::kStringList &&
             std::holds_alternative<std::vector<int64_t>>(value) &&
             std::get<std::vector<int64_t>>(value).empty()) {
    value = std::vector<std::string>{};
  }
}

}  // namespace

std::string_view option_type_name(OptionType type) {
  switch (type) {
    case OptionType::kBool:
      return "true or false";
    case OptionType::kInt:
      return "an integer";
    case OptionType::kFloat:
      return "a number";
    case OptionType::kString:
      return "a string";
    case OptionType::kIntList:
      return "a list of integers";
    case OptionType::kFloatList:
      return "a list of numbers";
    case OptionType::kStringList:
      return "a list of strings";
  }
  return "unknown";
}

std::string to_toml(const OptionValue& value) {
  return std::visit([](const auto& v) { return text_of(v); }, value);
}

const OptionField* OptionSchema::find(std::string_view name) const {
  for (const OptionField& field : fields_) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

OptionValues OptionSchema::defaults() const {
  OptionValues values;
  for (const OptionField& field : fields_) {
    if (!field.required) values.emplace(field.name, field.default_value);
  }
  return values;
}

std::string OptionSchema::check_value(const OptionField& field, OptionValue& value) {
  if (field.is_size && std::holds_alternative<std::string>(value)) {
    const auto& text = std::get<std::string>(value);
    const auto bytes = parse_bytes(text);
    if (!bytes)
      return "must be a number of elements or a size such as \"25MB\", is " + quoted(text);
    value = *bytes / 4;
  }
  widen(field, value);
  if (value.index() != static_cast<size_t>(field.type)) {
    std::string wanted(option_type_name(field.type));
    if (field.is_size) wanted += " (elements) or a size such as \"25MB\"";
    return "must be " + wanted + ", is " +
           std::string(option_type_name(static_cast<OptionType>(value.index()))) + " (" +
           to_toml(value) + ")";
  }
  const auto check_list = [&](const auto& list, const auto& check_one) -> std::string {
    if (field.list_length && list.size() != *field.list_length) {
      return "must have " + std::to_string(*field.list_length) + " entries, has " +
             std::to_string(list.size());
    }
    for (const auto& item : list) {
      if (std::string wrong = check_one(item); !wrong.empty()) return "each entry " + wrong;
    }
    return {};
  };
  const auto number = [&](auto n) {
    return check_number(field, static_cast<double>(n), text_of(n));
  };
  const auto word = [&](const std::string& w) { return check_word(field, w); };
  switch (field.type) {
    case OptionType::kBool:
      return {};
    case OptionType::kInt:
      return number(std::get<int64_t>(value));
    case OptionType::kFloat:
      return number(std::get<double>(value));
    case OptionType::kString:
      return word(std::get<std::string>(value));
    case OptionType::kIntList:
      return check_list(std::get<std::vector<int64_t>>(value), number);
    case OptionType::kFloatList:
      return check_list(std::get<std::vector<double>>(value), number);
    case OptionType::kStringList:
      return check_list(std::get<std::vector<std::string>>(value), word);
  }
  return {};
}

void OptionSchema::check(const OptionValues& values, Problems& problems) const {
  if (check_) check_(*this, values, problems);
}

void OptionSchema::assign(void* options, const OptionValues& values) const {
  for (size_t i = 0; i < fields_.size(); ++i) {
    const auto found = values.find(fields_[i].name);
    if (found == values.end()) {
      if (fields_[i].required) throw ConfigError("option '" + fields_[i].name + "' is required");
      continue;
    }
    OptionValue value = found->second;
    if (const std::string wrong = check_value(fields_[i], value); !wrong.empty()) {
      throw ConfigError("option '" + fields_[i].name + "' " + wrong);
    }
    setters_[i](options, value);
  }
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0) || !std::isfinite(number)) return std::nullopt;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"B", 1},
      {"KB", 1024.0},
      {"KiB", 1024.0},
      {"MB", 1024.0 * 1024},
      {"MiB", 1024.0 * 1024},
      {"GB", 1024.0 * 1024 * 1024},
      {"GiB", 1024.0 * 1024 * 1024},
  };
  for (const auto& [name, factor] : kUnits) {
    if (unit == name) {
      const double bytes = number * factor;
      if (bytes > 9e18) return std::nullopt;
      return static_cast<int64_t>(bytes);
    }
  }
  return std::nullopt;
}

}  // namespace zerolab
