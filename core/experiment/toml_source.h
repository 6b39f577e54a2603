#pragma once
// The door to the TOML library: text in, settings out.

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "experiment/settings.h"

namespace zerolab {

/// Text that is not TOML; what() is a clause without position.
class TomlSyntaxError : public std::runtime_error {
 public:
  TomlSyntaxError(const std::string& message, Position at) : std::runtime_error(message), at_(at) {}
  Position at() const { return at_; }

 private:
  Position at_;
};

/// Parses a whole text; positions carry `source`. Errors: TomlSyntaxError.
SettingTable parse_toml(std::string_view text, size_t source);

/// Parses one value of an override ("0.1", "[1, 2]", "{ plugin = \"a\" }"). What is no TOML and
/// does not begin like a TOML list, table or quoted string is a string as it stands. Errors:
/// TomlSyntaxError for a list, table or quoted string that is not well formed.
Setting parse_override_value(std::string_view text, size_t source);

/// The content of a file. Errors: TomlSyntaxError, at the file's begin, if it is missing, a folder,
/// unreadable, empty or too big to be an experiment.
std::string read_toml_file(const std::filesystem::path& file, size_t source);

}  // namespace zerolab
