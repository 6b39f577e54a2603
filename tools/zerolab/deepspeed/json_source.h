#pragma once
// A JSON object as a user wrote it: its values in the file's order, and where each key stands.
// Comments (// and /* */) are passed over; a key that is given twice is refused, as by DeepSpeed.
//
// Paths: the keys from the root, joined by points; a key of other characters than
// [A-Za-z0-9_-] is quoted and escaped, so that a path is always one word of printable ASCII.

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace zerolab {

using Json = nlohmann::ordered_json;

/// `path` with one more key; `path` may be empty.
std::string join_path(const std::string& path, const std::string& key);
/// The value as JSON on one line of printable ASCII, shortened if it is long.
std::string shown(const Json& value);

class JsonSource {
 public:
  /// `name` is what messages call the file. Errors: ConfigError with name:line:column for a syntax
  /// error or a key that is given twice, or if the root is no object.
  static JsonSource parse(std::string_view text, const std::string& name);
  JsonSource(JsonSource&&) = default;
  JsonSource(const JsonSource&) = delete;  // values_ points into root_

  /// The value at a path below the root; null if there is none.
  const Json* find(const std::string& path) const;
  /// Every value that is no object with keys of its own, in the file's order.
  const std::vector<std::string>& leaves() const { return leaves_; }
  /// "name:line:column: key 'path'" for a message.
  std::string where(const std::string& path) const;
  const std::string& name() const { return name_; }

 private:
  JsonSource() = default;
  void index(const std::string& path, const Json& value);

  std::string name_;
  Json root_;
  std::map<std::string, std::string> positions_;  ///< path -> "line:column"
  std::map<std::string, const Json*, std::less<>> values_;
  std::vector<std::string> leaves_;
};

}  // namespace zerolab
