#pragma once
// What a run tells about itself: one record a step, one result at the end. No LibTorch here: the
// files that print include it.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace zerolab {

struct StepRecord {
  int64_t step = 0;  ///< number of the step just finished, from 1
  double loss = 0;   ///< mean over all targets of the step, all ranks
  double lr = 0;
  double grad_norm = 0;  ///< before clipping
  int64_t tokens = 0;    ///< counted targets since the start of the run, all ranks
  double tokens_per_sec = 0;
  double step_seconds = 0;  ///< without evaluation
  double val_loss = std::numeric_limits<double>::quiet_NaN();
  bool evaluated = false;  ///< val_loss was measured (and may be NaN for a diverged model)
  bool skipped = false;    ///< a gradient was not finite: no update, on every rank
  double loss_scale = 1;
  int64_t bytes_moved = 0;        ///< payload that this rank sent in the step
  int64_t peak_memory_bytes = 0;  ///< of rank 0; 0 on the others
};

struct RunResult {
  StepRecord last;
  double val_loss = std::numeric_limits<double>::quiet_NaN();
  double tokens_per_sec = 0;  ///< median over steps after the first tenth
  double seconds = 0;
  int64_t parameters = 0;  ///< elements, trainable and frozen
  int64_t skipped_steps = 0;
  int64_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0,
          bucket_bytes = 0;          ///< held by this rank
  int64_t bytes_moved_per_step = 0;  ///< in the last step that was not skipped
};

/// Told what happens; on rank 0 it prints and writes, elsewhere it is silent.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  virtual void on_step(const StepRecord& record) = 0;
};

/// Columns of metrics.h5 in order, and a record as such a row.
const std::vector<std::string>& metric_columns();
std::vector<double> metric_row(const StepRecord& record);

}  // namespace zerolab
