#pragma once
// What the tests of the DeepSpeed import share: importing a text, and looking at what came of it.

#include <map>
#include <sstream>
#include <string>

#include "zerolab/error.h"

#include "catch.h"
#include "deepspeed/deepspeed_import.h"

namespace import_test {

using zerolab::ConfigError;
using zerolab::DeepSpeedImport;
using zerolab::KeyVerdict;

inline DeepSpeedImport imported(const std::string& json) {
  return zerolab::import_deepspeed(json, "ds.json");
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline KeyVerdict verdict(const DeepSpeedImport& import, const std::string& key) {
  for (const KeyVerdict& found : import.keys) {
    if (found.key == key) return found;
  }
  FAIL("no verdict on " << key);
  return {};
}

/// "table.key" -> value as text, of the emitted TOML without its comments.
inline std::map<std::string, std::string> values(const DeepSpeedImport& import) {
  std::map<std::string, std::string> found;
  std::string table, line;
  std::istringstream lines(import.toml);
  while (std::getline(lines, line)) {
    line = line.substr(0, line.find('#'));
    line.erase(line.find_last_not_of(' ') + 1);
    if (line.empty()) continue;
    if (line.front() == '[') {
      table = line.substr(1, line.size() - 2) + ".";
      continue;
    }
    const std::string key = line.substr(0, line.find_first_of(" ="));
    CHECK(found.emplace(table + key, line.substr(line.find("= ") + 2)).second);
  }
  return found;
}

inline std::string error_of(const std::string& json) {
  try {
    imported(json);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace import_test
