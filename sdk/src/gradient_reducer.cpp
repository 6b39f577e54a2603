#include "zerolab/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "zerolab/error.h"

namespace zerolab {
namespace {

/// Exchanges under way at once: enough to hide one behind the next, few enough to bound the memory.
constexpr size_t kMaxPending = 2;

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

GradientReducer::GradientReducer(Parameters& parameters, const FlatLayout& layout,
                                 ReduceRoute route, ReducerTraits traits)
    : parameters_(parameters),
      layout_(layout),
      route_(route),
      traits_(traits),
      owner_wire_(wire_for(traits.wire, traits.dtype)) {
  traits_.wire = owner_wire_;
  // Alone, the owned slice of a bucket is the bucket: keeping all of it copies nothing, and nothing
  // is sent that a wire could round.
  if (route.owners.size() == 1) {
    traits_.keep_full = true;
    owner_wire_ = WireDtype::kFloat32;
  }
  slot_of_parameter_.assign(parameters.size(), -1);
  for (size_t s = 0; s < layout.slots().size(); ++s) {
    slot_of_parameter_[layout.slots()[s].parameter] = static_cast<int64_t>(s);
  }
  seen_.assign(layout.slots().size(), false);
  waiting_.resize(layout.slots().size());
  make_segments();
  make_stages();
  if (traits_.keep_full) {
    full_ = at::zeros({layout.length()}, options());
  } else {
    shard_ = at::zeros({layout.shard_length()}, options());
  }
  if (traits_.error_feedback && owner_wire_ != WireDtype::kFloat32) {
    residual_ = at::zeros({layout.length()}, options());
  }
  parameters.on_gradient([this](size_t parameter) { gradient_ready(parameter); });
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::make_segments() {
  segments_.resize(layout_.buckets().size());
  for (size_t s = 0; s < layout_.slots().size(); ++s) {
    const Slot& slot = layout_.slots()[s];
    const auto [first, last] = layout_.slot_buckets(s);
    for (size_t b = first; b <= last && first <= last; ++b) {
      const Bucket& bucket = layout_.buckets()[b];
      const int64_t from = std::max(slot.offset, bucket.offset);
      const int64_t to = std::min(slot.offset + slot.numel, bucket.offset + bucket.length);
      segments_[b].push_back({s, from - bucket.offset, from - slot.offset, to - from});
    }
  }
  buckets_of_slot_.assign(layout_.slots().size(), 0);
  for (const auto& segments : segments_) {
    slots_in_bucket_.push_back(segments.size());
    for (const Segment& segment : segments) ++buckets_of_slot_[segment.slot];
  }
  const auto& regions = layout_.regions();
  for (size_t r = 0; r < regions.size(); ++r) {
    const std::string of = regions.size() == 1 ? std::string()
                           : r == 0
                               ? std::string(" of small parameters,")
                               : " of unit " + parameters_.unit_name(static_cast<int>(r) - 1) + ",";
    for (size_t b = regions[r].first_bucket; b < regions[r].end_bucket; ++b) {
      labels_.push_back("gradients" + of + " bucket " + std::to_string(b));
    }
  }
}

size_t GradientReducer::depth(const FlatLayout& layout, const ReducerTraits& traits) {
  return std::min(traits.overlap ? kMaxPending : 1, layout.buckets().size());
}

void GradientReducer::make_stages() {
  const int64_t longest = layout_.longest_bucket();
  const int ranks = route_.owners.size();
  stages_.resize(depth(layout_, traits_));
  for (size_t i = 0; i < stages_.size(); ++i) {
    free_stages_.push_back(i);
    Stage& stage = stages_[i];
    if (!traits_.keep_full) stage.bucket = at::empty({longest}, options());
    stage.wire = WireBuffers::for_reduce_scatter(owner_wire_, longest, ranks, traits_.dtype);
  }
  if (route_.replicas == nullptr) return;
  replica_buffers_ = WireBuffers::for_reduce_scatter(traits_.wire, longest / ranks,
                                                     route_.replicas->size(), traits_.dtype);
}

void GradientReducer::begin_micro_batch(bool last) {
  last_ = last;
  reducing_ = last || traits_.reduce_every == ReduceEvery::kMicroBatch;
  if (!reducing_ && !full_.defined()) full_ = at::zeros({layout_.length()}, options());
  missing_ = slots_in_bucket_;
  buckets_to_send_ = buckets_of_slot_;
  std::fill(seen_.begin(), seen_.end(), false);
  launched_.assign(layout_.buckets().size(), false);
  next_bucket_ = static_cast<int64_t>(layout_.buckets().size()) - 1;
}

void GradientReducer::gradient_ready(size_t parameter) {
  const at::NoGradGuard no_grad;
  const auto slot = static_cast<size_t>(slot_of_parameter_[parameter]);
  if (seen_[slot]) {
    throw PluginError("parameter '" + parameters_.info(parameter).name +
                      "' got two gradients in one backward");
  }
  seen_[slot] = true;
  at::Tensor& gradient = parameters_.tensor(parameter).mutable_grad();
  const auto [first, last] = layout_.slot_buckets(slot);
  if (full_.defined()) {
    add_to_full(layout_.slots()[slot], gradient);
  } else if (first <= last) {
    waiting_[slot] = gradient.reshape({-1});
  }
  gradient.reset();
  for (size_t b = first; b <= last && first <= last; ++b) --missing_[b];
  if (traits_.by_region || !reducing_) return;
  while (next_bucket_ >= 0 && missing_[static_cast<size_t>(next_bucket_)] == 0) {
    launch(static_cast<size_t>(next_bucket_--));
  }
}

void GradientReducer::add_to_full(const Slot& slot, const at::Tensor& gradient) const {
  const at::Tensor to = full_.narrow(0, slot.offset, slot.numel).view(gradient.sizes());
  if (traits_.reduce_every == ReduceEvery::kStep && micro_batch_ > 0) {
    to.add_(gradient);
  } else {
    to.copy_(gradient);
  }
}

void GradientReducer::complete_region(size_t region) {
  if (!reducing_) return;
  const at::NoGradGuard no_grad;
  const Region& cut = layout_.regions()[region];
  for (size_t b = cut.end_bucket; b > cut.first_bucket; --b) {
    if (!launched_[b - 1]) launch(b - 1);
  }
}

/// A bucket's gradients in one piece: zeros where there is none, and in gaps.
at::Tensor GradientReducer::collect(size_t bucket, Stage& stage) {
  const Bucket& cut = layout_.buckets()[bucket];
  const bool full = full_.defined();
  const at::Tensor whole =
      full ? full_.narrow(0, cut.offset, cut.length) : stage.bucket.narrow(0, 0, cut.length);
  // Sums over micro-batches already hold zeros for what got no gradient.
  const bool fresh = traits_.reduce_every == ReduceEvery::kMicroBatch || micro_batch_ == 0;
  int64_t filled = 0;
  for (const Segment& segment : segments_[bucket]) {
    const at::Tensor to = whole.narrow(0, segment.in_bucket, segment.length);
    at::Tensor& from = waiting_[segment.slot];
    if (!full) {
      if (segment.in_bucket > filled) whole.narrow(0, filled, segment.in_bucket - filled).zero_();
      filled = segment.in_bucket + segment.length;
      if (from.defined()) to.copy_(from.narrow(0, segment.in_slot, segment.length));
      if (--buckets_to_send_[segment.slot] == 0) from.reset();
    }
    if (!seen_[segment.slot] && (!full || fresh)) to.zero_();
  }
  if (!full && filled < cut.length) whole.narrow(0, filled, cut.length - filled).zero_();
  return whole;
}

void GradientReducer::launch(size_t bucket) {
  if (free_stages_.empty()) finish_one();
  const size_t index = free_stages_.back();
  free_stages_.pop_back();
  Stage& stage = stages_[index];
  const at::Tensor whole = collect(bucket, stage);
  const Bucket& cut = layout_.buckets()[bucket];
  WireBuffers buffers = stage.wire.part(owner_wire_, cut.length, route_.owners.size());
  const at::Tensor residual =
      residual_.defined() ? residual_.narrow(0, cut.offset, cut.length) : at::Tensor();
  pending_.push_back({wire_reduce_scatter(route_.owners, owner_wire_, slice(bucket), whole, buffers,
                                          residual, labels_[bucket]),
                      bucket, index});
  launched_[bucket] = true;
  if (!traits_.overlap) finish_one();
}

void GradientReducer::finish_one() {
  const Pending pending = std::move(pending_.front());
  pending_.pop_front();
  pending.work->wait();
  free_stages_.push_back(pending.stage);
  if (route_.replicas != nullptr) sum_over_replicas(pending.bucket);
}

void GradientReducer::sum_over_replicas(size_t bucket) {
  Communicator& across = *route_.replicas;
  const at::Tensor sum = slice(bucket);
  const int64_t part = sum.numel() / across.size();
  const at::Tensor own = sum.narrow(0, across.rank() * part, part);
  WireBuffers buffers = replica_buffers_.part(traits_.wire, sum.numel(), across.size());
  wire_reduce_scatter(across, traits_.wire, own, sum, buffers, {}, labels_[bucket])->wait();
  wire_all_gather(across, traits_.wire, sum, own, buffers, labels_[bucket])->wait();
}

void GradientReducer::end_micro_batch() {
  const at::NoGradGuard no_grad;
  if (reducing_) {
    for (size_t b = layout_.buckets().size(); b > 0; --b) {
      if (!launched_[b - 1]) launch(b - 1);
    }
    while (!pending_.empty()) finish_one();
    if (traits_.reduce_every == ReduceEvery::kMicroBatch) fold_micro_batch();
  } else if (micro_batch_ == 0) {
    for (size_t s = 0; s < seen_.size(); ++s) {
      if (!seen_[s]) full_.narrow(0, layout_.slots()[s].offset, layout_.slots()[s].numel).zero_();
    }
  }
  if (traits_.same_use) check_same_use();
  ++micro_batch_;
}

/// This rank's slices of the micro-batch just reduced, as one tensor of their own.
at::Tensor GradientReducer::take_sum() {
  at::Tensor spare;
  if (spare_sums_.empty()) {
    spare = at::empty({layout_.shard_length()}, options());
    partial_bytes_ += bytes_of(spare);
  } else {
    spare = std::move(spare_sums_.back());
    spare_sums_.pop_back();
  }
  if (!traits_.keep_full) {
    std::swap(spare, shard_);
    return spare;
  }
  for (size_t b = 0; b < layout_.buckets().size(); ++b) {
    owned_part(spare, b).copy_(slice(b));
  }
  return spare;
}

/// Adds the micro-batch just reduced to the tree. Sums are made where one of the two lies: a + b is
/// b + a to the last bit.
void GradientReducer::fold_micro_batch() {
  if (last_) {
    for (; !partial_sums_.empty(); partial_sums_.pop_back()) {
      at::Tensor& earlier = partial_sums_.back().second;
      for (size_t b = 0; b < layout_.buckets().size(); ++b) slice(b).add_(owned_part(earlier, b));
      spare_sums_.push_back(std::move(earlier));
    }
    return;
  }
  if (partial_sums_.empty() || partial_sums_.back().first > 0) {
    partial_sums_.emplace_back(0, take_sum());
    return;
  }
  auto& [first_level, sum] = partial_sums_.back();
  for (size_t b = 0; b < layout_.buckets().size(); ++b) owned_part(sum, b).add_(slice(b));
  ++first_level;
  while (partial_sums_.size() > 1 &&
         partial_sums_[partial_sums_.size() - 2].first == partial_sums_.back().first) {
    at::Tensor later = std::move(partial_sums_.back().second);
    partial_sums_.pop_back();
    partial_sums_.back().second.add_(later);
    ++partial_sums_.back().first;
    spare_sums_.push_back(std::move(later));
  }
}

/// A bucket's part of a tensor over owned space.
at::Tensor GradientReducer::owned_part(const at::Tensor& owned, size_t bucket) const {
  return owned.narrow(0, layout_.owned_offset(bucket), layout_.slice_length(bucket));
}

at::Tensor GradientReducer::slice(size_t bucket) const {
  if (traits_.keep_full) {
    return full_.narrow(0, layout_.slice_offset(bucket, route_.owners.rank()),
                        layout_.slice_length(bucket));
  }
  return owned_part(shard_, bucket);
}

at::Tensor GradientReducer::gradients(const FlatRange& range) const {
  if (traits_.keep_full) return full_.narrow(0, range.offset, range.length);
  const int64_t in_slice = range.offset - layout_.slice_offset(range.bucket, route_.owners.rank());
  return shard_.narrow(0, layout_.owned_offset(range.bucket) + in_slice, range.length);
}

GradientNorm GradientReducer::norm() const {
  std::vector<at::Tensor> slices;
  for (size_t b = 0; b < layout_.buckets().size(); ++b) slices.push_back(slice(b));
  return gradient_norm(slices, route_.owners);
}

void GradientReducer::release() {
  micro_batch_ = 0;
}

void GradientReducer::discard() {
  const at::NoGradGuard no_grad;
  for (auto& [level, sum] : partial_sums_) spare_sums_.push_back(std::move(sum));
  partial_sums_.clear();
  uses_.clear();
  for (at::Tensor& gradient : waiting_) gradient.reset();
  if (residual_.defined()) residual_.zero_();
  release();
}

int64_t GradientReducer::gradient_bytes() const {
  return bytes_of(traits_.keep_full ? full_ : shard_) + bytes_of(residual_) + partial_bytes_;
}

int64_t GradientReducer::bucket_bytes() const {
  int64_t bytes = replica_buffers_.bytes();
  for (const Stage& stage : stages_) bytes += bytes_of(stage.bucket) + stage.wire.bytes();
  if (!traits_.keep_full) bytes += bytes_of(full_);
  return bytes;
}

}  // namespace zerolab
