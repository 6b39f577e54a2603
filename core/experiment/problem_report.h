#pragma once
// All mistakes of an experiment, each with its place, thrown together.

#include <string>
#include <string_view>
#include <vector>

#include "experiment/settings.h"

namespace zerolab {

class ProblemReport {
 public:
  /// `sources` outlives the report and may grow.
  explicit ProblemReport(const std::vector<Source>& sources) : sources_(sources) {}

  /// A mistake about a key; an empty key leaves out "key '...': ".
  void add(Position at, std::string_view key, const std::string& message);
  /// The same for a plugin that is missing or refused.
  void add_plugin(Position at, std::string_view key, const std::string& message);
  bool empty() const { return problems_.empty(); }
  size_t size() const { return problems_.size(); }

  /// Errors: if there are problems, one ConfigError with a line for each, in the order of sources,
  /// lines and columns; a PluginError instead if all are about plugins.
  void throw_if_any() const;

 private:
  struct Problem {
    Position at;
    std::string text;
    bool about_plugin;
  };
  void add(Position at, std::string_view key, const std::string& message, bool about_plugin);

  const std::vector<Source>& sources_;
  std::vector<Problem> problems_;
};

/// "exp.toml:12:3", or "override 'a.b=1'".
std::string position_text(const std::vector<Source>& sources, Position at);

/// Control characters, line breaks among them, as "\n" or "\x1B": what users type stays on one
/// line.
std::string one_line(std::string_view text);

}  // namespace zerolab
