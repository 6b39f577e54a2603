#pragma once
// The keys that DeepSpeed documents, beyond those that have a counterpart here: what to say of
// each. Also the list of all, to tell a typing error from a feature.

#include <span>
#include <string>
#include <vector>

namespace zerolab {

/// A key, or a table with all that is in it.
struct KnownKey {
  const char* path;
  /// The value, as JSON, that asks for nothing; "" if each value asks for something; "enabled" for
  /// a table that its key of that name turns on.
  const char* neutral;
  const char* why;  ///< why another value is not honoured, or what to do instead
};

std::span<const KnownKey> known_keys();
/// Keys with a counterpart; the translations know what to do with them.
std::span<const char* const> translated_keys();

/// The entry of a key or of the nearest table around it; null if there is none.
const KnownKey* find_known(const std::string& path);
/// The names that DeepSpeed knows in a table ("" for the top level), the translated ones included.
std::vector<std::string> known_names(const std::string& table);
/// The tables that know a name, for one that stands in the wrong table.
std::vector<std::string> tables_with(const std::string& name);

}  // namespace zerolab
