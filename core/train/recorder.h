#pragma once
// A row in the store and a line on the screen for each step.
// Ranks: rank 0 only.

#include <cstdio>
#include <filesystem>
#include <string>

#include "store/run_folder.h"
#include "train/progress.h"
#include "train/record.h"

namespace zerolab {

class Recorder : public TrainingObserver {
 public:
  /// Opens the folder's metrics. References outlive it.
  Recorder(RunFolder& folder, std::FILE* out, int64_t steps, int64_t finished_steps);
  void on_step(const StepRecord& record) override;
  void on_rollback(int64_t step, const std::string& reason) override;

 private:
  RunFolder& folder_;
  Progress progress_;
};

/// Hears everything and says nothing.
class SilentObserver : public TrainingObserver {
 public:
  void on_step(const StepRecord&) override {}
};

/// What /summary and summary.json hold.
RunSummary store_summary(const RunResult& result);

/// The last step of a journal: what a run that ended between its last step and its summary still
/// has to tell.
StepRecord last_recorded_step(const std::filesystem::path& journal);

}  // namespace zerolab
