#include "experiment/problem_report.h"

#include <algorithm>
#include <tuple>

#include "zerolab/error.h"

namespace zerolab {

std::string one_line(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (byte < 32 || byte == 127) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

std::string position_text(const std::vector<Source>& sources, Position at) {
  const Source& source = sources[at.source];
  if (source.is_override) return source.label;
  return source.label + ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
}

void ProblemReport::add(Position at, std::string_view key, const std::string& message) {
  add(at, key, message, false);
}

void ProblemReport::add_plugin(Position at, std::string_view key, const std::string& message) {
  add(at, key, message, true);
}

void ProblemReport::add(Position at, std::string_view key, const std::string& message,
                        bool about_plugin) {
  std::string text = position_text(sources_, at) + ": ";
  if (!key.empty()) text += "key '" + std::string(key) + "': ";
  problems_.push_back({at, one_line(text + message), about_plugin});
}

void ProblemReport::throw_if_any() const {
  if (problems_.empty()) return;
  std::vector<Problem> sorted = problems_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Problem& a, const Problem& b) {
    return std::tie(a.at.source, a.at.line, a.at.column) <
           std::tie(b.at.source, b.at.line, b.at.column);
  });
  std::string text;
  bool only_plugins = true;
  for (const Problem& problem : sorted) {
    if (!text.empty()) text += '\n';
    text += problem.text;
    only_plugins = only_plugins && problem.about_plugin;
  }
  if (only_plugins) throw PluginError(text);
  throw ConfigError(text);
}

}  // namespace zerolab
