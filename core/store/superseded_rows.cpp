#include "store/superseded_rows.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "zerolab/error.h"

#include "store/journal_reader.h"

namespace zerolab {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

std::string text_or_empty(const fs::path& file) {
  return file_exists(file) ? read_text_file(file) : "";
}

/// metrics.superseding.jsonl: a line of where, and the rows.
struct Intent {
  int64_t finished_steps = 0;
  size_t bytes_before = 0;  ///< length of metrics.superseded.jsonl
  std::string rows;
};

std::string intent_text(const Intent& intent) {
  const json head = {{"finished_steps", intent.finished_steps},
                     {"bytes_before", intent.bytes_before}};
  return head.dump() + "\n" + intent.rows;
}

Intent parse_intent(const std::string& text, const fs::path& file) {
  const size_t end = text.find('\n');
  try {
    const json head = json::parse(text.substr(0, end));
    return {head.at("finished_steps").get<int64_t>(), head.at("bytes_before").get<size_t>(),
            text.substr(end + 1)};
  } catch (const json::exception&) {
    throw StoreError(file.string() +
                     ": is damaged; add its rows to metrics.superseded.jsonl by hand, remove them "
                     "from metrics.jsonl and this file from the folder.");
  }
}

void carry_out(FileLayer& files, const fs::path& folder, const Intent& intent) {
  const fs::path superseded = folder / "metrics.superseded.jsonl",
                 journal = folder / "metrics.jsonl";
  std::string rows = text_or_empty(superseded);
  rows.resize(std::min(rows.size(), intent.bytes_before));
  write_file(files, superseded, rows + intent.rows);
  write_file(files, journal, cut_journal(text_or_empty(journal), intent.finished_steps).kept);
  remove_file(files, folder / "metrics.superseding.jsonl");
}

}  // namespace

void supersede_rows(FileLayer& files, const fs::path& folder, int64_t finished_steps) {
  const fs::path journal = folder / "metrics.jsonl";
  if (!file_exists(journal)) return;
  const std::string text = read_text_file(journal);
  const CutJournal cut = cut_journal(text, finished_steps);
  if (cut.later.empty()) {
    if (cut.kept.size() != text.size()) write_file(files, journal, cut.kept);
    return;
  }
  const Intent intent{finished_steps, text_or_empty(folder / "metrics.superseded.jsonl").size(),
                      cut.later};
  write_file(files, folder / "metrics.superseding.jsonl", intent_text(intent));
  carry_out(files, folder, intent);
}

void finish_superseding(FileLayer& files, const fs::path& folder) {
  const fs::path file = folder / "metrics.superseding.jsonl";
  if (file_exists(file)) carry_out(files, folder, parse_intent(read_text_file(file), file));
}

}  // namespace zerolab
