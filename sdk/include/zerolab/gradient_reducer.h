#pragma once
// Gradients on their way from backward to their owner: kept as they appear, reduced bucket by
// bucket while backward goes on, and added over micro-batches along the fixed tree.
//
// Order: begin_micro_batch(last), backward, end_micro_batch() per micro-batch; after the last
// one slice() holds this rank's reduced gradients until release().
// Ranks: [collective] everything but construction; collectives are issued in an order that hooks
// do not change: in layout order from the last bucket to the first, or region by region as
// complete_region() is called.
//
// Each reduced micro-batch is added along the same stride-doubling tree as ranks are: (m0 + m1)
// + (m2 + m3). Together with the tree over ranks this makes the sum over global micro-batches
// (micro * R + rank) the same for 1, 2, 4 ... ranks.

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/communicator.h"
#include "zerolab/exact_norm.h"
#include "zerolab/export.h"
#include "zerolab/flat.h"
#include "zerolab/footprint.h"
#include "zerolab/parameters.h"
#include "zerolab/wire.h"

namespace zerolab {

/// 25 MB of float32, as PyTorch's DistributedDataParallel: the default of reduce_bucket_size.
inline constexpr int64_t kDefaultBucketElements = 6553600;

enum class ReduceEvery {
  kMicroBatch,  ///< reduce each micro-batch, add the results
  kStep,        ///< add micro-batches locally, reduce once
};

struct ReducerTraits {
  /// Keep the whole flat gradient in memory (slices are reduced in place). Otherwise gradients wait
  /// as autograd made them, are dropped as their bucket is sent, and only the owned slices stay;
  /// with ReduceEvery::kStep and several micro-batches their sums have to live until the last one.
  /// Buckets go in layout order from the last, so a parameter that stands last and gets its
  /// gradient late, or none, keeps all others waiting: that memory is in no figure of this class.
  bool keep_full = true;
  ReduceEvery reduce_every = ReduceEvery::kMicroBatch;
  bool overlap = true;     ///< go on with backward while a bucket is on its way
  bool by_region = false;  ///< a region's buckets wait for complete_region()
  /// A parameter that gets a gradient on some ranks only is an error; otherwise it counts as zero
  /// on the others. (One that gets none anywhere counts as zero either way.)
  bool same_use = true;
  WireDtype wire = WireDtype::kFloat32;
  bool error_feedback = false;  ///< of a wire that rounds, towards owners (not across groups)
  /// What gradients are kept, sent and summed in. With 16 bits every addition is rounded, and the
  /// wire is kFloat32: values travel as they are.
  at::ScalarType dtype = at::kFloat;
};

/// Where gradients go: to their owners, then, if there are several groups of owners, over the ranks
/// that own the same slices.
struct ReduceRoute {
  ReduceRoute(Communicator& to, Communicator* across = nullptr) : owners(to), replicas(across) {}
  Communicator& owners;
  Communicator* replicas;
};

class ZEROLAB_API GradientReducer {
 public:
  /// Takes over the parameters' gradient callback, which points here from then on: no backward
  /// after the end of this. The layout and the communicators outlive it.
  GradientReducer(Parameters& parameters, const FlatLayout& layout, ReduceRoute route,
                  ReducerTraits traits);
  ~GradientReducer();

  /// [local] Before the forward of a micro-batch; `last` says that it closes the step.
  void begin_micro_batch(bool last);
  /// [collective] With by_region: no further gradient comes for a region's parameters.
  void complete_region(size_t region);
  /// [collective] Reduces what is left; a trainable parameter without a gradient counts as zero.
  /// Errors: PeerError, after the last micro-batch, if ranks used different parameters (same_use).
  void end_micro_batch();
  /// This rank's reduced slice of a bucket: [slice_length], of the traits' dtype. Valid after the
  /// last end_micro_batch().
  at::Tensor slice(size_t bucket) const;
  /// The whole flat gradient; only with keep_full (where a strategy gathers gradients into it).
  const at::Tensor& full() const { return full_; }
  /// Gradients of a range that lies in this rank's slice (or anywhere in full()).
  at::Tensor gradients(const FlatRange& range) const;
  /// [collective] Norm over all owners' slices.
  GradientNorm norm() const;
  /// Ends the step whose gradients were used.
  void release();
  /// Ends the step whose gradients are not used, or that was broken off between collectives; what
  /// error feedback kept is forgotten, because it is of gradients that never counted.
  void discard();

  /// What error feedback carries to the next step: [length], this rank's own; undefined without it.
  const at::Tensor& residual() const { return residual_; }

  /// High-water bytes: gradients that stay, and buffers of what is on its way.
  int64_t gradient_bytes() const;
  int64_t bucket_bytes() const;
  /// Adds what will be held and moved in a step of so many micro-batches; `replicas` groups of
  /// owners.
  static void predict(const FlatLayout& layout, int replicas, ReducerTraits traits,
                      int64_t micro_batches, Footprint& footprint);

 private:
  /// Part of a parameter in a bucket, in elements.
  struct Segment {
    size_t slot;
    int64_t in_bucket, in_slot, length;
  };
  /// Memory of one bucket on its way.
  struct Stage {
    at::Tensor bucket;
    WireBuffers wire;
  };
  struct Pending {
    std::unique_ptr<Work> work;
    size_t bucket, stage;
  };
  at::TensorOptions options() const { return at::TensorOptions().dtype(traits_.dtype); }
  void make_segments();
  void make_stages();
  static size_t depth(const FlatLayout& layout, const ReducerTraits& traits);
  void gradient_ready(size_t parameter);
  void add_to_full(const Slot& slot, const at::Tensor& gradient) const;
  at::Tensor collect(size_t bucket, Stage& stage);
  void launch(size_t bucket);
  void finish_one();
  void sum_over_replicas(size_t bucket);
  void fold_micro_batch();
  at::Tensor owned_part(const at::Tensor& owned, size_t bucket) const;
  at::Tensor take_sum();
  void check_same_use();

  Parameters& parameters_;  // not touched by the destructor: they may be gone
  const FlatLayout& layout_;
  ReduceRoute route_;
  ReducerTraits traits_;
  WireDtype owner_wire_;

  std::vector<int64_t> slot_of_parameter_;      // -1 for a frozen one
  std::vector<std::vector<Segment>> segments_;  // by bucket
  std::vector<std::string> labels_;             // by bucket
  std::vector<size_t> slots_in_bucket_, buckets_of_slot_;

  at::Tensor full_;      // keep_full: [length]; or sums over micro-batches that are not reduced yet
  at::Tensor shard_;     // not keep_full: [shard_length]
  at::Tensor residual_;  // error feedback: [length]
  std::vector<at::Tensor> waiting_;      // by slot: gradients whose buckets were not sent yet
  std::vector<size_t> buckets_to_send_;  // by slot, of this micro-batch
  std::vector<Stage> stages_;
  std::vector<size_t> free_stages_;
  WireBuffers replica_buffers_;
  std::vector<size_t> missing_;  // by bucket, slots still to come
  std::vector<bool> seen_;       // by slot, in this micro-batch
  std::vector<bool> launched_;   // by bucket
  int64_t next_bucket_ = 0;      // counts down
  std::deque<Pending> pending_;
  bool last_ = true;      // this micro-batch closes the step
  bool reducing_ = true;  // this micro-batch is reduced
  int64_t micro_batch_ = 0;
  std::vector<int64_t> uses_;  // bits of seen_, micro-batch after micro-batch
  std::vector<std::pair<int, at::Tensor>>
      partial_sums_;  // (level, [shard_length]) of the micro-batch tree
  std::vector<at::Tensor> spare_sums_;
  int64_t partial_bytes_ = 0;
};

}  // namespace zerolab
