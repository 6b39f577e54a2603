#include "zerolab/bucket_gather.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

namespace zerolab {
namespace {

/// More gathers at once than this only add buffers.
constexpr int64_t kMostInFlight = 4;

int64_t longest(const FlatLayout& layout, size_t first, size_t end) {
  int64_t length = 0;
  for (size_t b = first; b < end; ++b) length = std::max(length, layout.buckets()[b].length);
  return length;
}

}  // namespace

void predict_gather(WireDtype wire, int64_t n, int ranks, int64_t element_size, int64_t times,
                    Footprint& footprint) {
  if (ranks == 1) return;
  const int64_t bytes = wire == WireDtype::kFloat32 ? n / ranks * (ranks - 1) * element_size
                                                    : all_gather_sent_bytes(wire, n, ranks);
  footprint.of(CollectiveKind::kAllGather).add(times, bytes);
}

int64_t BucketGather::in_flight(const FlatLayout& layout, GatherTraits traits, size_t first,
                                size_t end) {
  const int64_t length = std::max<int64_t>(1, longest(layout, first, end));
  const int64_t wanted = std::clamp<int64_t>(traits.elements_in_flight / length, 1, kMostInFlight);
  return std::min(wanted, static_cast<int64_t>(end - first));
}

BucketGather::BucketGather(const FlatLayout& layout, Communicator& owners, GatherTraits traits,
                           size_t first, size_t end)
    : layout_(layout), owners_(owners), traits_(traits), first_(first), end_(end) {
  // Alone there is nothing to send, and nothing is rounded.
  if (owners.size() == 1) traits_.wire = WireDtype::kFloat32;
  buffers_.resize(static_cast<size_t>(in_flight(layout, traits_, first, end)));
  const int64_t length = longest(layout, first, end);
  for (WireBuffers& buffers : buffers_) {
    buffers = WireBuffers::for_all_gather(traits_.wire, length, owners.size());
  }
}

void BucketGather::run(const at::Tensor& whole, const std::function<at::Tensor(size_t)>& slice,
                       std::string_view what) {
  std::deque<std::unique_ptr<Work>> pending;
  for (size_t b = first_; b < end_; ++b) {
    if (pending.size() == buffers_.size()) {
      pending.front()->wait();
      pending.pop_front();
    }
    const Bucket& bucket = layout_.buckets()[b];
    const std::string label = std::string(what) + ", bucket " + std::to_string(b);
    WireBuffers buffers =
        buffers_[(b - first_) % buffers_.size()].part(traits_.wire, bucket.length, owners_.size());
    pending.push_back(wire_all_gather(owners_, traits_.wire,
                                      whole.narrow(0, bucket.offset, bucket.length), slice(b),
                                      buffers, label));
  }
  for (const auto& work : pending) work->wait();
}

int64_t BucketGather::buffer_bytes() const {
  int64_t bytes = 0;
  for (const WireBuffers& buffers : buffers_) bytes += buffers.bytes();
  return bytes;
}

void BucketGather::predict(const FlatLayout& layout, GatherTraits traits, size_t first, size_t end,
                           int64_t element_size, int64_t times, Footprint& footprint) {
  const int ranks = layout.num_ranks();
  if (ranks == 1) return;
  for (size_t b = first; b < end; ++b) {
    predict_gather(traits.wire, layout.buckets()[b].length, ranks, element_size, times, footprint);
  }
  footprint.held.buckets +=
      in_flight(layout, traits, first, end) *
      all_gather_buffer_bytes(traits.wire, longest(layout, first, end), ranks);
}

}  // namespace zerolab
