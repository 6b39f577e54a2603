#pragma once
// Reads metrics.jsonl, and cuts it where a run goes back.
// Ranks: local.
// Errors: StoreError that names the file.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "store/run_folder.h"

namespace zerolab {

struct JournalRows {
  std::vector<std::string> columns;  ///< every key, in the order in which they first appear
  /// In the file's order, each as long as `columns`; bit by bit what was written, NaN where a line
  /// has no such key.
  std::vector<MetricsRow> rows;
  /// Lines before the last row that are no rows. What is cut off or damaged after it is what the
  /// end of a process or a machine leaves, and not counted.
  size_t num_damaged = 0;
};

/// Of a run that goes on or has ended. Errors: StoreError if the file cannot be read.
JournalRows read_journal(const std::filesystem::path& file);

/// A journal's lines, whole and with their line feeds; a last one without is in neither.
struct CutJournal {
  std::string kept;   ///< up to the step
  std::string later;  ///< rows of later steps; a damaged line stays with the row before it
};
CutJournal cut_journal(const std::string& text, int64_t finished_steps);

}  // namespace zerolab
