#pragma once
// JSON as the run folder's text files write it: the same bytes whatever the locale.

#include <map>
#include <string>
#include <string_view>

namespace zerolab {

/// Appends a number in the fewest digits that read back to the same bits; whole numbers up to 2^53
/// without point or exponent. JSON has no word for the rest: infinities are the strings "Infinity"
/// and "-Infinity", NaN is null.
void append_json_number(std::string& out, double value);

/// The text in quotes, escaped; bytes that are not UTF-8 are replaced.
std::string json_quoted(std::string_view text);

/// An object of texts, a line each.
std::string json_object(const std::map<std::string, std::string>& texts);

}  // namespace zerolab
