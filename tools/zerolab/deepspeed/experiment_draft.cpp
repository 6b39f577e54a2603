#include "experiment_draft.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "zerolab/error.h"

namespace zerolab {
namespace {

constexpr std::array<const char*, 14> kTables = {"",
                                                 "model",
                                                 "data",
                                                 "batch",
                                                 "optimizer",
                                                 "optimizer.sgd",
                                                 "scheduler",
                                                 "scheduler.cosine",
                                                 "scheduler.linear",
                                                 "precision",
                                                 "precision.fp16",
                                                 "sharding",
                                                 "sharding.zero3",
                                                 "sharding.hsdp"};
constexpr size_t kColumns = 100;

std::string wrapped(const std::string& text, const std::string& first, const std::string& later) {
  std::istringstream words(text);
  std::string lines, line, word;
  while (words >> word) {
    if (line.empty()) {
      line = first + word;
    } else if (line.size() + 1 + word.size() <= kColumns) {
      line += " " + word;
    } else {
      lines += line + "\n";
      line = later + word;
    }
  }
  return lines + (line.empty() ? "" : line + "\n");
}

}  // namespace

void ExperimentDraft::set(const std::string& table, const std::string& key, OptionValue value,
                          std::string comment) {
  if (std::find(kTables.begin(), kTables.end(), table) == kTables.end()) {
    throw Error("the draft of an experiment has no table '" + table + "'.");
  }
  tables_[table].lines.push_back({key, to_toml(value), std::move(comment)});
}

void ExperimentDraft::note(const std::string& table, std::string comment) {
  tables_[table].comment = std::move(comment);
}

std::string ExperimentDraft::toml() const {
  std::string text;
  for (const char* name : kTables) {
    const auto found = tables_.find(name);
    if (found == tables_.end()) continue;
    const auto& [comment, lines] = found->second;
    if (name[0] != '\0') {
      text += (text.empty() ? "[" : "\n[") + std::string(name) + "]";
      text += comment.empty() ? "\n" : "  # " + comment + "\n";
    }
    size_t key_width = 0, value_width = 0;
    for (const Line& line : lines) {
      key_width = std::max(key_width, line.key.size());
      value_width = std::max(value_width, line.value.size());
    }
    for (const Line& line : lines) {
      std::string row = line.key + std::string(key_width - line.key.size(), ' ') + " = ";
      row += line.value;
      if (!line.comment.empty()) {
        row += std::string(value_width - line.value.size() + 2, ' ') + "# " + line.comment;
      }
      text += row + "\n";
    }
  }
  return text;
}

std::string comment_lines(const std::string& text) {
  return wrapped(text, "# ", "# ");
}

std::string comment_item(const std::string& text) {
  return wrapped(text, "#   ", "#     ");
}

}  // namespace zerolab
