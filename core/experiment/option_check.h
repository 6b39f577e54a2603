#pragma once
// Holds settings against a description of options; the host's own tables and the plugins' are
// checked by this one code.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zerolab/options.h"

#include "experiment/problem_report.h"
#include "experiment/settings.h"

namespace zerolab {

/// A setting on its way to an option, under the key by which the user knows it ("scheduler.lr").
struct GivenOption {
  const Setting* setting = nullptr;
  std::string key;
};
using GivenOptions = std::map<std::string, GivenOption, std::less<>>;  ///< by option name

/// A value as it will be used.
struct CheckedValue {
  OptionValue value;
  std::string origin;  ///< "exp.toml:12", "override", "default" or "computed"
  Position at;         ///< of the value, or of the table for one that nobody gave
};

/// The options of a table, complete if nothing was wrong.
struct CheckedTable {
  std::map<std::string, CheckedValue, std::less<>> values;
  bool sound = true;
  OptionValues options() const;
};

/// A table to check.
struct OptionCheck {
  const OptionSchema& schema;
  std::string_view table;        ///< "scheduler", "" for the top level: prefix of keys in messages
  Position at;                   ///< where to point for options that nobody gave
  const GivenOptions& given;     ///< only options that the schema has
  const OptionValues& computed;  ///< stand in for options that nobody gave
};

/// Checks every given value, fills in defaults, then runs the description's own cross-field checks.
/// Problems go to the report.
CheckedTable check_options(const OptionCheck& check, const std::vector<Source>& sources,
                           ProblemReport& report);

/// One value as its field wants it: the type, the range, absolute paths. Empty after reporting a
/// problem.
std::optional<OptionValue> check_setting(const GivenOption& given, const OptionField& field,
                                         const std::vector<Source>& sources, ProblemReport& report);

/// A path as a source means it, absolute; an empty one stays empty.
std::string absolute_path(const std::string& path, const std::filesystem::path& folder);

/// "exp.toml:12" or "override".
std::string origin_text(const std::vector<Source>& sources, Position at);

/// What a field takes, and what it is if not given: "an integer, at least 0, in steps; default
/// 100".
std::string describe_field(const OptionField& field);

/// "; nearest valid key 'a.b': an integer ...", or the list of valid keys if none is near.
std::string suggest_key(std::string_view word, const OptionSchema& schema, std::string_view table);

}  // namespace zerolab
