#pragma once
// Micro-batches from a data plugin: which samples this rank computes at which step, and the
// tensors that hold them.
// Shapes: B sequences, T tokens.
// Ranks: local.

#include <cstdint>

#include "zerolab/data.h"
#include "zerolab/model.h"

#include "experiment/experiment.h"
#include "train/sample_order.h"

namespace zerolab {

class Batcher {
 public:
  Batcher(const Data& data, const BatchConfig& config, uint64_t seed, int rank, int num_ranks);
  /// [hot] Micro-batch `micro` of the step whose samples begin at global sample number
  /// `first_sample`. The tensors are reused by the next call.
  const Batch& train(int64_t first_sample, int64_t micro);
  /// Validation sequences [first, first + count), count <= B. The tensors are reused by the next
  /// call.
  Batch validation(int64_t first, int64_t count);
  /// Number of the micro-batch over all ranks: the same numbers for any number of ranks with the
  /// same total.
  int64_t global_micro_batch(int64_t micro) const { return micro * num_ranks_ + rank_; }

 private:
  void fill(Split split, int64_t row, int64_t index);

  const Data& data_;
  const BatchConfig& config_;
  SampleOrder order_;
  int rank_, num_ranks_;
  Batch batch_;
};

}  // namespace zerolab
