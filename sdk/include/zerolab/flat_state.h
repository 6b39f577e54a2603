#pragma once
// What strategies that keep whole parameters on every rank have in common: flat parameters,
// gradients on their way to their owner, and optimizer states of the ranges that this rank
// updates. A strategy says how gradients are kept, who owns what, and what is published when.
// Ranks: construction is [collective] (every rank makes the same), update_owned and what it
// returns are [local].

#include <cstdint>
#include <vector>

#include "zerolab/export.h"
#include "zerolab/flat.h"
#include "zerolab/gradient_reducer.h"
#include "zerolab/optimizer_shard.h"
#include "zerolab/options.h"
#include "zerolab/sharding.h"

namespace zerolab {

/// The options of a strategy that reduces gradients in buckets.
struct ZEROLAB_API BucketOptions {
  int64_t reduce_bucket_size = kDefaultBucketElements;
  static void describe(Describe<BucketOptions>& d);
};

/// Who updates what: each rank its own slices, or everyone everything.
enum class Ownership { kSharded, kReplicated };

class ZEROLAB_API FlatState {
 public:
  /// Lays out, binds and fills the parameters, takes over their gradients, and makes the optimizer
  /// states. The context's references outlive this. Errors: what allocation throws.
  FlatState(const ShardingContext& context, const BucketOptions& options, bool keep_full_gradients,
            Ownership ownership);

  GradientReducer& reducer() { return reducer_; }
  const FlatLayout& layout() const { return layout_; }
  /// [hot] Updates the owned ranges from the reduced gradients.
  void update_owned(const UpdateStep& step);
  /// [hot] [collective] Every rank's slices of the parameters to every rank.
  void publish_parameters() { parameters_.publish(layout_, world_); }
  /// [hot] [collective] Every rank's slices of the gradients to every rank; needs full gradients.
  void publish_gradients();

  std::vector<StatePiece> pieces() const { return optimizer_.pieces(declared_); }
  HeldBytes held_bytes() const;

 private:
  Parameters& declared_;
  Communicator& world_;
  FlatLayout layout_;
  FlatParameters parameters_;
  GradientReducer reducer_;
  OptimizerShard optimizer_;
};

}  // namespace zerolab
