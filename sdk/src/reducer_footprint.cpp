// What GradientReducer will hold and move, and its check that ranks use the same parameters.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "zerolab/bucket_gather.h"
#include "zerolab/error.h"
#include "zerolab/gradient_reducer.h"
#include "zerolab/random.h"

namespace zerolab {
namespace {

/// Sums that the tree over micro-batches holds at once, besides the one that is being made: what
/// GradientReducer::fold_micro_batch allocates.
int64_t held_sums(int64_t micro_batches) {
  std::vector<int> levels;
  int64_t made = 0, spare = 0;
  for (int64_t m = 0; m < micro_batches; ++m) {
    const bool last = m + 1 == micro_batches;
    if (last && levels.empty()) break;
    spare > 0 ? --spare : ++made;
    int level = 0;
    for (; !levels.empty() && levels.back() == level; ++level) {
      levels.pop_back();
      ++spare;
    }
    if (!last) levels.push_back(level);
  }
  return made;
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
                              int64_t element_size, int64_t micro_batches, Footprint& footprint) {
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
  if (each) held.gradients += held_sums(micro_batches) * layout.shard_length() * 4;
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
  if (!traits.keep_full && !each && micro_batches > 1) held.buckets += layout.length() * 4;
  if (replicas > 1) held.buckets += buffers(traits.wire, longest / ranks, replicas);
}

/// At the end of a step all ranks must have got gradients for the same parameters.
void GradientReducer::check_same_use() {
  int64_t word = 0;
  for (size_t s = 0; s < seen_.size(); ++s) {
    if (seen_[s]) word |= int64_t{1} << (s % 63);
    if (s % 63 == 62 || s + 1 == seen_.size()) uses_.push_back(std::exchange(word, 0));
  }
  if (!last_) return;
  const std::vector<int64_t> mine = std::exchange(uses_, {});
  uint64_t hash = 0;
  for (const int64_t bits : mine) hash = mix_key({hash, static_cast<uint64_t>(bits)});
  for (Communicator* ranks : {&route_.owners, route_.replicas}) {
    if (ranks == nullptr || ranks->size() == 1) continue;
    const auto hashes = ranks->gather_control(std::vector<int64_t>{static_cast<int64_t>(hash)});
    const auto other =
        std::find_if(hashes.begin(), hashes.end(), [&](int64_t h) { return h != hashes.front(); });
    if (other == hashes.end()) continue;
    const auto all = ranks->gather_control(mine);
    const auto rank = static_cast<size_t>(other - hashes.begin());
    const size_t words_each = (seen_.size() + 62) / 63;
    for (size_t w = 0; w < mine.size(); ++w) {
      const int64_t first = all[w], second = all[rank * mine.size() + w];
      if (first == second) continue;
      const auto bit = static_cast<size_t>(__builtin_ctzll(static_cast<uint64_t>(first ^ second)));
      const size_t slot = w % words_each * 63 + bit;
      const bool on_first = ((first >> bit) & 1) != 0;
      const auto name = [&](size_t r) {
        return std::to_string(ranks->rank_in_run(static_cast<int>(r)));
      };
      const std::string with = name(on_first ? 0 : rank), without = name(on_first ? rank : 0);
      throw PeerError("ranks use different parameters: '" +
                      parameters_.info(layout_.slots()[slot].parameter).name +
                      "' got a gradient on rank " + with + " and none on rank " + without +
                      " in micro-batch " + std::to_string(w / words_each + 1) +
                      " of the step; make every rank run the same parts of the model, or set "
                      "sharding.find_unused_parameters = true to count it as zero there");
    }
  }
}

}  // namespace zerolab
