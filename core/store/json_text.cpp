#include "store/json_text.h"

#include <charconv>
#include <cmath>
#include <cstdint>

#include <nlohmann/json.hpp>

namespace zerolab {

void append_json_number(std::string& out, double value) {
  constexpr double kLargestWhole = 9007199254740992.0;  // 2^53: above it, neighbours are missing
  if (std::isnan(value)) {
    out += "null";
    return;
  }
  if (std::isinf(value)) {
    out += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    return;
  }
  if (value == 0 && std::signbit(value)) {
    out += "-0.0";  // an integer zero would lose the sign
    return;
  }
  char digits[32];
  std::to_chars_result result{};
  if (std::abs(value) <= kLargestWhole && std::trunc(value) == value) {
    result = std::to_chars(digits, digits + sizeof digits, static_cast<int64_t>(value));
  } else {
    result = std::to_chars(digits, digits + sizeof digits, value);
  }
  out.append(digits, result.ptr);
}

std::string json_quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_object(const std::map<std::string, std::string>& texts) {
  return nlohmann::json(texts).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace zerolab
