// What GradientReducer will hold and move.

#include <bit>

#include "zerolab/bucket_gather.h"
#include "zerolab/gradient_reducer.h"

namespace zerolab {
namespace {

/// Sums that the tree over micro-batches holds at once, besides the micro-batch that is being made:
/// log2 of their number, rounded down. What GradientReducer::fold_micro_batch allocates.
int64_t held_sums(int64_t micro_batches) {
  return std::bit_width(static_cast<uint64_t>(micro_batches)) - 1;
}

void predict_reduce(WireDtype wire, int64_t n, int ranks, int64_t element_size, int64_t times,
                    Footprint& footprint) {
  if (ranks == 1) return;
  if (wire == WireDtype::kFloat32) {
    footprint.of(CollectiveKind::kReduceScatter).add(times, n / ranks * (ranks - 1) * element_size);
  } else {
    footprint.of(CollectiveKind::kAllToAll).add(times, reduce_scatter_sent_bytes(wire, n, ranks));
  }
}

}  // namespace

void GradientReducer::predict(const FlatLayout& layout, int replicas, ReducerTraits traits,
                              int64_t micro_batches, Footprint& footprint) {
  const auto element_size = static_cast<int64_t>(c10::elementSize(traits.dtype));
  traits.wire = wire_for(traits.wire, traits.dtype);
  const int ranks = layout.num_ranks();
  const WireDtype owner_wire = ranks == 1 ? WireDtype::kFloat32 : traits.wire;
  if (ranks == 1) traits.keep_full = true;
  const bool each = traits.reduce_every == ReduceEvery::kMicroBatch;
  const int64_t times = each ? micro_batches : 1;
  for (const Bucket& bucket : layout.buckets()) {
    predict_reduce(owner_wire, bucket.length, ranks, element_size, times, footprint);
    if (replicas == 1) continue;
    const int64_t slice = bucket.length / ranks;
    predict_reduce(traits.wire, slice, replicas, element_size, times, footprint);
    predict_gather(traits.wire, slice, replicas, element_size, times, footprint);
  }
  HeldBytes& held = footprint.held;
  held.gradients += (traits.keep_full ? layout.length() : layout.shard_length()) * element_size;
  if (each) held.gradients += held_sums(micro_batches) * layout.shard_length() * element_size;
  if (owner_wire != WireDtype::kFloat32 && traits.error_feedback)
    held.gradients += layout.length() * 4;
  const int64_t longest = layout.longest_bucket();
  const auto buffers = [&](WireDtype wire, int64_t n, int to) {
    return wire != WireDtype::kFloat32 ? reduce_scatter_buffer_bytes(wire, n, to)
                                       : (to == 1 ? 0 : n * element_size);
  };
  const auto stages = static_cast<int64_t>(depth(layout, traits));
  held.buckets += stages * buffers(owner_wire, longest, ranks);
  if (!traits.keep_full) held.buckets += stages * longest * element_size;
  if (!traits.keep_full && !each && micro_batches > 1)
    held.buckets += layout.length() * element_size;
  if (replicas > 1) held.buckets += buffers(traits.wire, longest / ranks, replicas);
}

}  // namespace zerolab
