#include "deepspeed_config.h"

#include <cmath>
#include <utility>

#include "zerolab/error.h"
#include "zerolab/options.h"

namespace zerolab {
namespace {

constexpr double kExactIntegers = 9007199254740992;  // 2^53: beyond it a float skips integers

std::string range_text(const NumberRange& range) {
  std::string text;
  if (std::isfinite(range.low)) {
    text = (range.above_low ? " above " : " of at least ") + shown(Json(range.low));
  }
  if (std::isfinite(range.high)) {
    text += text.empty() ? "" : " and";
    text += (range.below_high ? " below " : " at most ") + shown(Json(range.high));
  }
  return text;
}

}  // namespace

bool DeepSpeedConfig::is_auto(const std::string& path) const {
  const Json* const found = source_.find(path);
  return found != nullptr && *found == "auto";
}

const Json* DeepSpeedConfig::value(const std::string& path, const std::string& as) {
  const Json* const found = source_.find(path);
  if (found == nullptr) return nullptr;
  if (found->is_null()) {
    without_effect(path, "null is as if the key were not there");
    return nullptr;
  }
  if (is_auto(path)) {
    not_honoured(path, "\"auto\" is filled in by Hugging Face's Trainer; give " + as + " yourself");
    return nullptr;
  }
  return found;
}

void DeepSpeedConfig::refuse(const std::string& path, const std::string& wanted) const {
  throw ConfigError(source_.where(path) + ": must be " + wanted + ", is " +
                    shown(*source_.find(path)) + ".");
}

double DeepSpeedConfig::checked(const std::string& path, const Json& value,
                                const NumberRange& range, const std::string& wanted) const {
  if (!value.is_number()) refuse(path, wanted);
  const double number = value.get<double>();
  const bool low = range.above_low ? number > range.low : number >= range.low;
  const bool high = range.below_high ? number < range.high : number <= range.high;
  if (!low || !high) refuse(path, wanted);
  return number;
}

std::optional<bool> DeepSpeedConfig::flag(const std::string& path, const std::string& as) {
  const Json* const found = value(path, as);
  if (found == nullptr) return std::nullopt;
  if (!found->is_boolean()) refuse(path, "true or false");
  return found->get<bool>();
}

std::optional<int64_t> DeepSpeedConfig::count(const std::string& path, const std::string& as,
                                              int64_t low, int64_t high) {
  const Json* const found = value(path, as);
  if (found == nullptr) return std::nullopt;
  std::string wanted = "an integer of at least " + std::to_string(low);
  if (high != std::numeric_limits<int64_t>::max()) wanted += " and at most " + std::to_string(high);
  if (found->is_number_float()) {
    const double number = found->get<double>();
    if (number != std::floor(number) || std::abs(number) > kExactIntegers) refuse(path, wanted);
  } else if (!found->is_number_integer() ||
             (found->is_number_unsigned() &&
              found->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})) {
    refuse(path, wanted);
  }
  const int64_t number = found->get<int64_t>();
  if (number < low || number > high) refuse(path, wanted);
  return number;
}

std::optional<double> DeepSpeedConfig::number(const std::string& path, const std::string& as,
                                              NumberRange range) {
  const Json* const found = value(path, as);
  if (found == nullptr) return std::nullopt;
  return checked(path, *found, range, "a number" + range_text(range));
}

std::optional<std::string> DeepSpeedConfig::word(const std::string& path, const std::string& as) {
  const Json* const found = value(path, as);
  if (found == nullptr) return std::nullopt;
  if (!found->is_string()) refuse(path, "a string");
  return found->get<std::string>();
}

std::optional<std::vector<double>> DeepSpeedConfig::numbers(const std::string& path,
                                                            const std::string& as, size_t length,
                                                            NumberRange range) {
  const Json* const found = value(path, as);
  if (found == nullptr) return std::nullopt;
  const std::string wanted = "a list of " + std::to_string(length) + " numbers" +
                             (range_text(range).empty() ? "" : ", each") + range_text(range);
  if (!found->is_array() || found->size() != length) refuse(path, wanted);
  std::vector<double> list;
  for (const Json& entry : *found) list.push_back(checked(path, entry, range, wanted));
  return list;
}

void DeepSpeedConfig::honoured(const std::string& path, const std::string& as,
                               const std::string& remark) {
  give({path, true, as, remark});
}

void DeepSpeedConfig::without_effect(const std::string& path, const std::string& remark) {
  give({path, true, "", remark});
}

void DeepSpeedConfig::not_honoured(const std::string& path, const std::string& why) {
  give({path, false, "", why});
}

void DeepSpeedConfig::give(KeyVerdict verdict) {
  const std::string path = verdict.key;
  if (!verdicts_.emplace(path, std::move(verdict)).second) {
    throw Error("the DeepSpeed import has two verdicts on key '" + path + "'.");
  }
}

std::vector<std::string> DeepSpeedConfig::open_keys(const std::string& table) const {
  std::vector<std::string> open;
  for (const std::string& path : source_.leaves()) {
    const bool below = path == table || path.starts_with(table + ".");
    if (below && !has_verdict(path)) open.push_back(path);
  }
  return open;
}

std::vector<KeyVerdict> DeepSpeedConfig::verdicts() const {
  std::vector<KeyVerdict> list;
  for (const std::string& path : source_.leaves()) list.push_back(verdicts_.at(path));
  return list;
}

}  // namespace zerolab
