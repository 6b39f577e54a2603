#include "host/option_text.h"

#include <cmath>
#include <cstdint>

namespace zerolab {
namespace {

/// A bound of an integer without a point.
std::string bound(const OptionField& field, double value) {
  const bool integral = field.type == OptionType::kInt || field.type == OptionType::kIntList;
  if (integral && std::abs(value) < 9e15) {
    return std::to_string(static_cast<int64_t>(value));
  }
  return to_toml(value);
}

void append(std::string& text, const std::string& separator, const std::string& part) {
  if (part.empty()) return;
  text += (text.empty() ? "" : separator) + part;
}

/// A comment of as many lines as `words` has, without characters that TOML forbids in one.
void append_comment(std::string& text, std::string_view words) {
  text.append("# ");
  for (char c : words) {
    if (c == '\n') {
      text.append("\n# ");
    } else if ((static_cast<unsigned char>(c) >= 32 && c != 127) || c == '\t') {
      text.push_back(c);
    }
  }
  text.append("\n");
}

OptionValue shown_value(const OptionField& field) {
  if (field.required && field.type == OptionType::kString && !field.allowed.empty()) {
    return field.allowed.front();
  }
  return field.default_value;
}

}  // namespace

std::string option_range(const OptionField& field) {
  std::string range;
  if (field.minimum) {
    append(range, "",
           (field.minimum_exclusive ? "above " : "at least ") + bound(field, *field.minimum));
  }
  if (field.maximum) {
    append(range, " and ",
           (field.maximum_exclusive ? "below " : "at most ") + bound(field, *field.maximum));
  }
  std::string words;
  for (const std::string& word : field.allowed) append(words, ", ", "\"" + word + "\"");
  if (!words.empty()) append(range, "; ", "one of " + words);
  if (field.list_length) append(range, "; ", std::to_string(*field.list_length) + " values");
  if (field.is_size) append(range, "; ", "or a size such as \"25MB\"");
  if (field.is_path) append(range, "; ", "a path, relative to this file");
  return range;
}

std::string skeleton_toml(Kind kind, std::string_view name, const OptionSchema& schema) {
  std::string text;
  text.append("[").append(kind_name(kind)).append("]\nplugin = \"").append(name).append("\"\n");
  for (const OptionField& field : schema.fields()) {
    std::string limits(field.required ? "required: " : "");
    limits.append(option_type_name(field.type));
    append(limits, ", in ", field.unit);
    append(limits, "; ", option_range(field));
    text.append("\n");
    append_comment(text, field.doc);
    append_comment(text, limits);
    text.append(field.name).append(" = ").append(to_toml(shown_value(field))).append("\n");
  }
  return text;
}

}  // namespace zerolab
