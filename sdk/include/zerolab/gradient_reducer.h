#pragma once
// Gradients on their way from backward to their owner: copied into buckets as they appear,
// reduced bucket by bucket in layout order while backward goes on, and added over micro-batches
// along the fixed tree.
//
// Order: begin_micro_batch(last), backward, end_micro_batch() per micro-batch; after the last
// one slice() holds this rank's reduced gradients until release().
// Ranks: [collective] everything but construction; collectives are issued in layout order from
// the last bucket to the first, never in the order of hooks.
//
// Each reduced micro-batch is added along the same stride-doubling tree as ranks are: (m0 + m1)
// + (m2 + m3). Together with the tree over ranks this makes the sum over global micro-batches
// (micro * R + rank) the same for 1, 2, 4 ... ranks.

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/communicator.h"
#include "zerolab/exact_norm.h"
#include "zerolab/export.h"
#include "zerolab/flat.h"
#include "zerolab/parameters.h"

namespace zerolab {

/// 25 MB of float32, as PyTorch's DistributedDataParallel: the default of reduce_bucket_size.
inline constexpr int64_t kDefaultBucketElements = 6553600;

enum class ReduceEvery {
  kMicroBatch,  ///< reduce each micro-batch, add the results
  kStep,        ///< add micro-batches locally, reduce once
};

struct ReducerTraits {
  /// Keep the whole flat gradient in memory (slices are reduced in place). Otherwise a bucket lives
  /// from its first gradient to its reduction, and only the owned slices stay; with
  /// ReduceEvery::kStep and several micro-batches buckets have to live until the last one.
  bool keep_full = true;
  ReduceEvery reduce_every = ReduceEvery::kMicroBatch;
};

class ZEROLAB_API GradientReducer {
 public:
  /// Takes over the parameters' gradient callback, which points here from then on: no backward
  /// after the end of this. The layout and the communicator outlive it.
  GradientReducer(Parameters& parameters, const FlatLayout& layout, Communicator& world,
                  ReducerTraits traits);
  ~GradientReducer();

  /// [local] Before the forward of a micro-batch; `last` says that it closes the step.
  void begin_micro_batch(bool last);
  /// [collective] Reduces what is left; a trainable parameter without a gradient counts as zero.
  void end_micro_batch();
  /// This rank's reduced slice of a bucket: [slice_length], float32. Valid after the last
  /// end_micro_batch().
  at::Tensor slice(size_t bucket) const;
  /// The whole bucket: [bucket length]; only with keep_full (where a strategy gathers gradients
  /// into it).
  at::Tensor full_bucket(size_t bucket) const;
  /// Gradients of a range that lies in this rank's slice (or anywhere in full_bucket), float32.
  at::Tensor gradients(const FlatRange& range) const;
  /// [collective] Norm over all ranks' slices.
  GradientNorm norm() const;
  /// Ends the step, whether the gradients were used or not.
  void release();

  /// High-water bytes: gradients that stay, and transient buckets.
  int64_t gradient_bytes() const;
  int64_t bucket_bytes() const { return peak_bucket_bytes_; }

 private:
  struct Pending {
    std::unique_ptr<Work> work;
    size_t bucket;
  };
  void gradient_ready(size_t parameter);
  void store_gradient(size_t slot, const at::Tensor& gradient);
  at::Tensor& bucket_buffer(size_t bucket);
  void launch_ready_buckets();
  void launch(size_t bucket);
  void finish_one();
  void fold_micro_batch();
  at::Tensor take_sum();

  Parameters& parameters_;  // not touched by the destructor: they may be gone
  const FlatLayout& layout_;
  Communicator& world_;
  ReducerTraits traits_;

  std::vector<int64_t> slot_of_parameter_;               // -1 for a frozen one
  std::vector<std::pair<size_t, size_t>> slot_buckets_;  // first and last bucket of each slot
  std::vector<int> bucket_slots_;                        // slots that touch each bucket

  at::Tensor full_;                  // keep_full: [length]
  at::Tensor shard_;                 // otherwise: [shard_length]
  std::vector<at::Tensor> buffers_;  // per bucket, when transient
  std::vector<at::Tensor> pool_;
  std::vector<int> missing_;  // per bucket, slots still to come
  std::vector<bool> seen_;    // per slot, in this micro-batch
  int64_t next_bucket_ = 0;   // counts down
  std::deque<Pending> pending_;
  bool last_ = true;      // this micro-batch closes the step
  bool reducing_ = true;  // this micro-batch is reduced
  int64_t micro_batch_ = 0;
  std::vector<std::pair<int, at::Tensor>>
      partial_sums_;  // (level, [shard_length]) of the micro-batch tree
  std::vector<at::Tensor> spare_sums_;
  int64_t live_bucket_bytes_ = 0, peak_bucket_bytes_ = 0, peak_partial_bytes_ = 0;
};

}  // namespace zerolab
