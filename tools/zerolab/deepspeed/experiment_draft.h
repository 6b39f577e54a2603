#pragma once
// The text of an experiment file in the making: tables in the order of the house, a comment behind
// each value.

#include <map>
#include <string>
#include <vector>

#include "zerolab/options.h"

namespace zerolab {

class ExperimentDraft {
 public:
  /// `table` is "" for the top level. Keys keep the order in which they are set; a key is set once.
  /// `comment`: one line, or empty.
  void set(const std::string& table, const std::string& key, OptionValue value,
           std::string comment = "");
  /// A comment behind the table's name.
  void note(const std::string& table, std::string comment);
  /// The file, without a final blank line.
  std::string toml() const;

 private:
  struct Line {
    std::string key, value, comment;
  };
  struct Table {
    std::string comment;
    std::vector<Line> lines;
  };
  std::map<std::string, Table> tables_;
};

/// `text` as comment lines of at most 100 columns, where words allow it.
std::string comment_lines(const std::string& text);
/// The same, indented; the second and later lines more than the first.
std::string comment_item(const std::string& text);

}  // namespace zerolab
