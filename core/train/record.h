#pragma once
// What a run tells about itself: one record a step, one result at the end. No LibTorch here: the
// files that print include it.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace zerolab {

/// Kinds of collectives, in the order of CollectiveKind.
inline constexpr std::array<const char*, 5> kCollectiveWords = {
    "reduce_scatter", "all_gather", "all_to_all", "broadcast", "control"};

/// What one kind of collective did on this rank: in a step, or in a step on average.
struct CollectiveRecord {
  double calls = 0;
  double bytes = 0;            ///< payload sent to other ranks
  double seconds = 0;          ///< from start to completion
  double exposed_seconds = 0;  ///< of these, spent waiting
  void add(const CollectiveRecord& other, double factor) {
    calls += factor * other.calls;
    bytes += factor * other.bytes;
    seconds += factor * other.seconds;
    exposed_seconds += factor * other.exposed_seconds;
  }
  CollectiveRecord over(double steps) const {
    return {calls / steps, bytes / steps, seconds / steps, exposed_seconds / steps};
  }
};
using CollectiveRecords = std::array<CollectiveRecord, kCollectiveWords.size()>;

/// Bytes of one rank, predicted or counted: held, by category, and moved in a step with an update.
struct RankBytes {
  int64_t parameters = 0, gradients = 0, optimizer = 0, buckets = 0, gathered = 0, moved = 0;
};

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
  bool skipped = false;    ///< no update, on every rank: a gradient was not finite, or the guard
  double loss_scale = 1;
  int64_t bytes_moved = 0;  ///< payload that this rank sent in the step; without control traffic
  /// What its strategy said; NaN if it says nothing, or the step was skipped.
  double bytes_moved_predicted = std::numeric_limits<double>::quiet_NaN();
  CollectiveRecords collectives;  ///< of the step
  /// Seconds that training waited for checkpoints since the step before, and that the checkpoint
  /// took which was published meanwhile; NaN if there was none.
  double checkpoint_stall_seconds = std::numeric_limits<double>::quiet_NaN();
  double checkpoint_seconds = std::numeric_limits<double>::quiet_NaN();
  std::string trouble;  ///< what the guard says of the step, as a sentence; empty: nothing
  int64_t peak_memory_bytes = 0;  ///< of rank 0's process; 0 on the others
  int64_t peak_tensor_bytes = 0;  ///< of this rank's tensors, so far
};

struct RunResult {
  StepRecord last;
  double val_loss = std::numeric_limits<double>::quiet_NaN();
  double tokens_per_sec = 0;  ///< median over steps after the first tenth
  double seconds = 0;
  int64_t parameters = 0;  ///< elements, trainable and frozen
  int64_t skipped_steps = 0;
  bool stopped = false;     ///< on request, before its last step
  int64_t checkpoints = 0;  ///< published in this session
  double checkpoint_stall_seconds = 0, checkpoint_seconds = 0;  ///< of them all
  RankBytes counted;  ///< held at the peak; moved in the last step that was not skipped
  std::optional<RankBytes> predicted;  ///< nothing from a strategy that states no footprint
  CollectiveRecords collectives;       ///< means over steps with an update after the first tenth
  int64_t saved_by_reducing_every_step = 0;  ///< bytes a step that reduce_every = "step" would save
};

/// Told what happens; on rank 0 it prints and writes, elsewhere it is silent.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  virtual void on_step(const StepRecord& record) = 0;
  /// Training went back to where it stood after `step` steps, and goes on with other samples.
  virtual void on_rollback(int64_t /*step*/, const std::string& /*reason*/) {}
};

/// Columns of metrics.h5 in order, and a record as such a row.
const std::vector<std::string>& metric_columns();
std::vector<double> metric_row(const StepRecord& record);

}  // namespace zerolab
