#include "experiment/option_check.h"

#include <charconv>
#include <utility>

#include "zerolab/error.h"

#include "experiment/experiment.h"

namespace zerolab {
namespace {

void make_paths_absolute(OptionValue& value, const std::filesystem::path& folder) {
  if (auto* path = std::get_if<std::string>(&value)) *path = absolute_path(*path, folder);
  if (auto* paths = std::get_if<std::vector<std::string>>(&value)) {
    for (std::string& path : *paths) path = absolute_path(path, folder);
  }
}

/// A bound without a needless ".0".
std::string number_text(double number) {
  if (number == static_cast<double>(static_cast<int64_t>(number))) {
    return std::to_string(static_cast<int64_t>(number));
  }
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr};
}

std::string words_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + to_toml(word);
  return text;
}

/// What holds if nobody gives the option.
std::string default_clause(const OptionField& field) {
  if (field.required) return "; required";
  OptionValue unset = field.default_value;
  // A default outside its own range stands for "follows from other keys".
  if (!OptionSchema::check_value(field, unset).empty())
    return "; follows from other keys if left out";
  return "; default " + to_toml(field.default_value);
}

/// The description's own checks, pointed at the values that they are about.
void check_together(const OptionCheck& check, CheckedTable& table, ProblemReport& report) {
  Problems problems;
  try {
    check.schema.check(table.options(), problems);
  } catch (const Error& error) {
    problems.add("", error.what());
  }
  for (const Problems::Problem& problem : problems.list()) {
    table.sound = false;
    const auto value = table.values.find(problem.option);
    if (value == table.values.end()) {
      report.add(check.at, check.table, problem.message);
      continue;
    }
    const auto given = check.given.find(problem.option);
    const std::string key =
        given != check.given.end() ? given->second.key : dotted_key(check.table, problem.option);
    report.add(value->second.at, key, problem.message);
  }
}

}  // namespace

OptionValues CheckedTable::options() const {
  OptionValues options;
  for (const auto& [name, checked] : values) options.emplace(name, checked.value);
  return options;
}

std::string absolute_path(const std::string& path, const std::filesystem::path& folder) {
  return path.empty() ? path : (folder / path).lexically_normal().string();
}

std::string origin_text(const std::vector<Source>& sources, Position at) {
  const Source& source = sources[at.source];
  return source.is_override ? source.origin : source.origin + ":" + std::to_string(at.line);
}

std::string suggest_key(std::string_view word, const OptionSchema& schema, std::string_view table) {
  std::vector<std::string> names;
  for (const OptionField& field : schema.fields()) names.push_back(field.name);
  if (const std::string near = nearest(word, names); !near.empty()) {
    return "; nearest valid key '" + dotted_key(table, near) +
           "': " + describe_field(*schema.find(near));
  }
  if (names.empty()) return "; it takes no options";
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return "; valid keys: " + list;
}

std::string describe_field(const OptionField& field) {
  std::string text(option_type_name(field.type));
  if (field.minimum) {
    text += (field.minimum_exclusive ? ", above " : ", at least ") + number_text(*field.minimum);
  }
  if (field.maximum) {
    text += (field.maximum_exclusive ? ", below " : ", at most ") + number_text(*field.maximum);
  }
  if (!field.allowed.empty()) text += ", one of " + words_text(field.allowed);
  if (field.list_length) text += ", " + std::to_string(*field.list_length) + " entries";
  if (!field.unit.empty()) text += ", in " + field.unit;
  return text + default_clause(field);
}

std::optional<OptionValue> check_setting(const GivenOption& given, const OptionField& field,
                                         const std::vector<Source>& sources,
                                         ProblemReport& report) {
  const Setting& setting = *given.setting;
  if (setting.option() == nullptr) {
    report.add(setting.value_at, given.key,
               "must be " + std::string(option_type_name(field.type)) + ", is " + setting.what() +
                   default_clause(field));
    return std::nullopt;
  }
  OptionValue value = *setting.option();
  if (const std::string wrong = OptionSchema::check_value(field, value); !wrong.empty()) {
    report.add(setting.value_at, given.key, wrong + default_clause(field));
    return std::nullopt;
  }
  if (field.is_path) make_paths_absolute(value, sources[setting.value_at.source].folder);
  return value;
}

CheckedTable check_options(const OptionCheck& check, const std::vector<Source>& sources,
                           ProblemReport& report) {
  CheckedTable table;
  for (const OptionField& field : check.schema.fields()) {
    if (const auto given = check.given.find(field.name); given != check.given.end()) {
      const Position at = given->second.setting->value_at;
      std::optional<OptionValue> value = check_setting(given->second, field, sources, report);
      table.sound = table.sound && value.has_value();
      if (value) {
        table.values[field.name] = {std::move(*value), origin_text(sources, at), at};
      }
    } else if (const auto found = check.computed.find(field.name); found != check.computed.end()) {
      table.values[field.name] = {found->second, "computed", check.at};
    } else if (field.required) {
      table.sound = false;
      report.add(check.at, dotted_key(check.table, field.name),
                 "is missing: " + field.doc + " (" + describe_field(field) + ")");
    } else {
      OptionValue value = field.default_value;
      if (field.is_path) make_paths_absolute(value, sources.front().folder);
      table.values[field.name] = {std::move(value), "default", check.at};
    }
  }
  if (table.sound) check_together(check, table, report);
  return table;
}

}  // namespace zerolab
