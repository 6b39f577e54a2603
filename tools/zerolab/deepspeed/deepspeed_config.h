#pragma once
// A DeepSpeed configuration while it is translated: values with the checks that DeepSpeed makes,
// and a book in which each key ends with exactly one verdict.
//
// Order: read a value, then give its verdict. A value that is there but says nothing (null, or
// Hugging Face's "auto") reads as absent and has its verdict already.

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "json_source.h"

namespace zerolab {

/// What became of one key.
struct KeyVerdict {
  std::string key;  ///< path in the configuration, e.g. "zero_optimization.stage"
  bool honoured = false;
  std::string as;      ///< key of the experiment, e.g. "sharding.plugin"; may be empty
  std::string remark;  ///< why not, or what is otherwise; empty if there is nothing to say
};

/// Numbers that are allowed, the ends included unless said.
struct NumberRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false, below_high = false;  ///< the end itself is not allowed
};

class DeepSpeedConfig {
 public:
  explicit DeepSpeedConfig(JsonSource source) : source_(std::move(source)) {}

  const JsonSource& source() const { return source_; }
  bool has(const std::string& path) const { return source_.find(path) != nullptr; }
  /// Whether the value is "auto", which Hugging Face's Trainer replaces before DeepSpeed sees it.
  bool is_auto(const std::string& path) const;

  /// Values; `as` is the key of the experiment that an "auto" leaves to the user. A whole float
  /// ("5e8") counts as an integer. Errors: ConfigError with the key's place for a wrong type or
  /// range.
  std::optional<bool> flag(const std::string& path, const std::string& as);
  std::optional<int64_t> count(const std::string& path, const std::string& as, int64_t low,
                               int64_t high = std::numeric_limits<int64_t>::max());
  std::optional<double> number(const std::string& path, const std::string& as, NumberRange range);
  std::optional<std::string> word(const std::string& path, const std::string& as);
  std::optional<std::vector<double>> numbers(const std::string& path, const std::string& as,
                                             size_t length, NumberRange range);

  /// Verdicts. Errors: Error if the key has one already: a fault of the translation.
  void honoured(const std::string& path, const std::string& as, const std::string& remark = "");
  void without_effect(const std::string& path, const std::string& remark);
  void not_honoured(const std::string& path, const std::string& why);
  bool has_verdict(const std::string& path) const { return verdicts_.count(path) != 0; }
  /// All keys below `table` that have no verdict yet.
  std::vector<std::string> open_keys(const std::string& table) const;

  /// In the file's order.
  std::vector<KeyVerdict> verdicts() const;

 private:
  const Json* value(const std::string& path, const std::string& as);
  [[noreturn]] void refuse(const std::string& path, const std::string& wanted) const;
  double checked(const std::string& path, const Json& value, const NumberRange& range,
                 const std::string& wanted) const;
  void give(KeyVerdict verdict);

  JsonSource source_;
  std::map<std::string, KeyVerdict> verdicts_;
};

}  // namespace zerolab
