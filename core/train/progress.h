#pragma once
// What a run prints: one line that is rewritten on a terminal, plain lines elsewhere, and a
// summary at the end.
// Ranks: rank 0 only.

#include <cstdint>
#include <cstdio>
#include <string>

#include "train/record.h"

namespace zerolab {

/// "1.5 GB", "312.0 KB": powers of 1000, as `plan` counts.
std::string format_bytes(double bytes);
/// "1 h 02 min", "3 min 20 s", "12 s".
std::string format_duration(double seconds);

class Progress {
 public:
  /// Lines go to `out`.
  Progress(std::FILE* out, int64_t total_steps, int64_t finished_steps = 0);
  void print(const StepRecord& record);
  void print_rollback(int64_t step, const std::string& reason);

 private:
  std::FILE* out_;
  bool terminal_;
  int64_t total_steps_, finished_before_, line_every_;
  double started_, last_line_;
};

struct RunDescription {
  std::string name, run_folder, plugins;
  int num_ranks = 1, threads = 1;
};

/// A line of its own.
void print_line(std::FILE* out, const std::string& line);
void print_header(std::FILE* out, const RunDescription& run, int64_t parameters, int64_t steps);
void print_summary(std::FILE* out, const RunDescription& run, const RunResult& result);
/// The summary as one JSON object.
std::string summary_json(const RunDescription& run, const RunResult& result);

}  // namespace zerolab
