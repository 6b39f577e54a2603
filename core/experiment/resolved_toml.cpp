#include "experiment/resolved_toml.h"

#include <algorithm>
#include <map>

#include "experiment/host_keys.h"
#include "experiment/problem_report.h"

namespace zerolab {
namespace {

/// Comments of a table stand in one column, unless a value is very long.
constexpr size_t kWidestColumn = 48;

struct Line {
  std::string text, comment;
};

Line line_of(const std::string& key, const OptionValue& value, const std::string& comment) {
  return {key + " = " + to_toml(value), comment};
}

void write_lines(const std::vector<Line>& lines, std::string& out) {
  size_t column = 0;
  for (const Line& line : lines) {
    if (line.text.size() <= kWidestColumn) column = std::max(column, line.text.size());
  }
  for (const Line& line : lines) {
    const size_t padding = line.text.size() < column ? column - line.text.size() : 0;
    out += line.text + std::string(padding, ' ') + "  # " + one_line(line.comment) + "\n";
  }
}

/// In the order of the description.
std::vector<Line> lines_of(const OptionSchema& schema, const CheckedTable& table) {
  std::vector<Line> lines;
  for (const OptionField& field : schema.fields()) {
    if (const auto found = table.values.find(field.name); found != table.values.end()) {
      lines.push_back(line_of(field.name, found->second.value, found->second.origin));
    }
  }
  return lines;
}

void write_kind(const std::string& kind, const KindTable& table, std::string& out) {
  out += "\n[" + kind + "]\n";
  std::vector<Line> lines = lines_of(*table.schema, table.options);
  lines.insert(lines.begin(), line_of("plugin", table.plugin, table.plugin_origin));
  write_lines(lines, out);
  std::map<std::string, std::vector<Line>> unused;
  for (const UnusedOption& option : table.unused) {
    unused[option.plugin].push_back(line_of(
        option.option, option.value, option.origin + ", not used: " + table.plugin + " is chosen"));
  }
  for (const auto& [plugin, options] : unused) {
    out += "\n[" + kind + "." + plugin + "]\n";
    write_lines(options, out);
  }
  for (const std::string& plugin : table.not_installed) {
    out += "# left out: options of " + one_line(plugin) + ", which is not installed\n";
  }
}

}  // namespace

std::string write_resolved_toml(const ExperimentTree& tree, const std::vector<CheckedTable>& host,
                                const KindTables& kinds, int num_ranks) {
  std::string out = "# " + to_toml(host.front().values.at("name").value) + ", resolved for " +
                    std::to_string(num_ranks) + (num_ranks == 1 ? " rank" : " ranks") + " from " +
                    one_line(tree.file.string()) + "\n";
  for (const Source& source : tree.sources) {
    if (source.is_override) out += "# " + one_line(source.label) + "\n";
  }
  for (size_t i = 0; i < host.size(); ++i) {
    const HostTable& table = host_tables()[i];
    out += table.name.empty() ? "\n" : "\n[" + table.name + "]\n";
    write_lines(lines_of(table.schema, host[i]), out);
  }
  for (Kind kind : kKinds) {
    write_kind(std::string(kind_name(kind)), kinds[static_cast<size_t>(kind)], out);
  }
  return out;
}

}  // namespace zerolab
