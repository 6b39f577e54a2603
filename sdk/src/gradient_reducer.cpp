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

at::TensorOptions floats() {
  return at::TensorOptions().dtype(at::kFloat);
}

}  // namespace

GradientReducer::GradientReducer(Parameters& parameters, const FlatLayout& layout,
                                 Communicator& world, ReducerTraits traits)
    : parameters_(parameters), layout_(layout), world_(world), traits_(traits) {
  // Alone, the owned slice of a bucket is the bucket: keeping all of it copies nothing.
  if (world.size() == 1) traits_.keep_full = true;
  const auto& buckets = layout.buckets();
  slot_of_parameter_.assign(parameters.size(), -1);
  bucket_slots_.assign(buckets.size(), 0);
  buffers_.resize(buckets.size());
  seen_.assign(layout.slots().size(), false);
  for (size_t s = 0; s < layout.slots().size(); ++s) {
    const Slot& slot = layout.slots()[s];
    slot_of_parameter_[slot.parameter] = static_cast<int64_t>(s);
    const int64_t width = buckets[0].length;
    const auto first = static_cast<size_t>(slot.offset / width);
    const auto last =
        static_cast<size_t>(std::max(slot.offset, slot.offset + slot.numel - 1) / width);
    slot_buckets_.emplace_back(first, std::min(last, buckets.size() - 1));
    for (size_t b = first; b <= slot_buckets_.back().second; ++b) ++bucket_slots_[b];
  }
  if (traits_.keep_full) {
    full_ = at::zeros({layout.length()}, floats());
  } else {
    shard_ = at::zeros({layout.shard_length()}, floats());
  }
  parameters.on_gradient([this](size_t parameter) { gradient_ready(parameter); });
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::begin_micro_batch(bool last) {
  last_ = last;
  reducing_ = last || traits_.reduce_every == ReduceEvery::kMicroBatch;
  missing_ = bucket_slots_;
  std::fill(seen_.begin(), seen_.end(), false);
  next_bucket_ = static_cast<int64_t>(layout_.buckets().size()) - 1;
}

void GradientReducer::gradient_ready(size_t parameter) {
  const at::NoGradGuard no_grad;
  const auto slot = static_cast<size_t>(slot_of_parameter_[parameter]);
  if (seen_[slot]) {
    throw PluginError("parameter '" + parameters_.info(parameter).name +
                      "' got two gradients in one backward");
  }
  at::Tensor& gradient = parameters_.tensor(parameter).mutable_grad();
  store_gradient(slot, gradient);
  gradient.reset();
  seen_[slot] = true;
  for (size_t b = slot_buckets_[slot].first; b <= slot_buckets_[slot].second; ++b) --missing_[b];
  launch_ready_buckets();
}

void GradientReducer::store_gradient(size_t slot_index, const at::Tensor& gradient) {
  const Slot& slot = layout_.slots()[slot_index];
  const bool add = traits_.reduce_every == ReduceEvery::kStep && micro_batch_ > 0;
  const auto put = [add](const at::Tensor& to, const at::Tensor& from) {
    if (add) {
      to.add_(from);
    } else {
      to.copy_(from);
    }
  };
  const auto [first, last] = slot_buckets_[slot_index];
  if (traits_.keep_full) {
    return put(full_.narrow(0, slot.offset, slot.numel).view(gradient.sizes()), gradient);
  }
  if (first == last) {
    const int64_t offset = slot.offset - layout_.buckets()[first].offset;
    return put(bucket_buffer(first).narrow(0, offset, slot.numel).view(gradient.sizes()), gradient);
  }
  const at::Tensor flat = gradient.reshape({-1});
  for (size_t b = first; b <= last; ++b) {
    const Bucket& bucket = layout_.buckets()[b];
    const int64_t from = std::max(slot.offset, bucket.offset);
    const int64_t count = std::min(slot.offset + slot.numel, bucket.offset + bucket.length) - from;
    put(bucket_buffer(b).narrow(0, from - bucket.offset, count),
        flat.narrow(0, from - slot.offset, count));
  }
}

at::Tensor& GradientReducer::bucket_buffer(size_t bucket) {
  at::Tensor& buffer = buffers_[bucket];
  if (buffer.defined()) return buffer;
  const Bucket& cut = layout_.buckets()[bucket];
  if (traits_.keep_full) {
    buffer = full_.narrow(0, cut.offset, cut.length);
    return buffer;
  }
  at::Tensor memory;
  if (pool_.empty()) {
    memory = at::empty({layout_.buckets()[0].length}, floats());
    live_bucket_bytes_ += static_cast<int64_t>(memory.nbytes());
    peak_bucket_bytes_ = std::max(peak_bucket_bytes_, live_bucket_bytes_);
  } else {
    memory = std::move(pool_.back());
    pool_.pop_back();
  }
  buffer = memory.narrow(0, 0, cut.length);
  buffer.zero_();  // gaps, and parameters that get no gradient
  return buffer;
}

void GradientReducer::launch_ready_buckets() {
  while (reducing_ && next_bucket_ >= 0 && missing_[static_cast<size_t>(next_bucket_)] == 0) {
    launch(static_cast<size_t>(next_bucket_--));
  }
}

void GradientReducer::launch(size_t bucket) {
  if (pending_.size() == kMaxPending) finish_one();
  const at::Tensor& buffer = bucket_buffer(bucket);
  pending_.push_back({world_.reduce_scatter(slice(bucket), buffer), bucket});
}

void GradientReducer::finish_one() {
  Pending pending = std::move(pending_.front());
  pending_.pop_front();
  pending.work->wait();
  at::Tensor& buffer = buffers_[pending.bucket];
  if (!traits_.keep_full) {
    const int64_t whole = layout_.buckets()[0].length;
    pool_.push_back(buffer.as_strided({whole}, {1}, 0));
    buffer.reset();
  }
}

void GradientReducer::end_micro_batch() {
  const at::NoGradGuard no_grad;
  const bool first_sum = micro_batch_ == 0 || traits_.reduce_every == ReduceEvery::kMicroBatch;
  if (traits_.keep_full && first_sum) {
    for (size_t s = 0; s < seen_.size(); ++s) {
      if (!seen_[s]) full_.narrow(0, layout_.slots()[s].offset, layout_.slots()[s].numel).zero_();
    }
  }
  if (reducing_) {
    while (next_bucket_ >= 0) launch(static_cast<size_t>(next_bucket_--));
    while (!pending_.empty()) finish_one();
    if (traits_.reduce_every == ReduceEvery::kMicroBatch) fold_micro_batch();
  }
  ++micro_batch_;
}

/// This rank's slices of the micro-batch just reduced, as one tensor of their own.
at::Tensor GradientReducer::take_sum() {
  at::Tensor spare;
  if (spare_sums_.empty()) {
    spare = at::empty({layout_.shard_length()}, floats());
    peak_partial_bytes_ += static_cast<int64_t>(spare.nbytes());
  } else {
    spare = std::move(spare_sums_.back());
    spare_sums_.pop_back();
  }
  if (!traits_.keep_full) {
    std::swap(spare, shard_);
    return spare;
  }
  for (size_t b = 0; b < layout_.buckets().size(); ++b) {
    spare.narrow(0, layout_.owned_offset(b), layout_.slice_length(b)).copy_(slice(b));
  }
  return spare;
}

void GradientReducer::fold_micro_batch() {
  if (last_ && partial_sums_.empty()) return;
  at::Tensor sum = take_sum();
  int level = 0;
  const auto add_to_last = [&] {
    at::Tensor earlier = std::move(partial_sums_.back().second);
    partial_sums_.pop_back();
    earlier.add_(sum);
    spare_sums_.push_back(std::exchange(sum, std::move(earlier)));
  };
  while (!partial_sums_.empty() && partial_sums_.back().first == level) {
    add_to_last();
    ++level;
  }
  if (!last_) {
    partial_sums_.emplace_back(level, std::move(sum));
    return;
  }
  while (!partial_sums_.empty()) add_to_last();
  if (!traits_.keep_full) {
    std::swap(shard_, sum);
  } else {
    for (size_t b = 0; b < layout_.buckets().size(); ++b) {
      slice(b).copy_(sum.narrow(0, layout_.owned_offset(b), layout_.slice_length(b)));
    }
  }
  spare_sums_.push_back(std::move(sum));
}

at::Tensor GradientReducer::slice(size_t bucket) const {
  if (traits_.keep_full) {
    return full_.narrow(0, layout_.slice_offset(bucket, world_.rank()),
                        layout_.slice_length(bucket));
  }
  return shard_.narrow(0, layout_.owned_offset(bucket), layout_.slice_length(bucket));
}

at::Tensor GradientReducer::full_bucket(size_t bucket) const {
  return full_.narrow(0, layout_.buckets()[bucket].offset, layout_.buckets()[bucket].length);
}

at::Tensor GradientReducer::gradients(const FlatRange& range) const {
  if (traits_.keep_full) return full_.narrow(0, range.offset, range.length);
  const int64_t in_slice = range.offset - layout_.slice_offset(range.bucket, world_.rank());
  return shard_.narrow(0, layout_.owned_offset(range.bucket) + in_slice, range.length);
}

GradientNorm GradientReducer::norm() const {
  std::vector<at::Tensor> slices;
  for (size_t b = 0; b < layout_.buckets().size(); ++b) slices.push_back(slice(b));
  return gradient_norm(slices, world_);
}

void GradientReducer::release() {
  micro_batch_ = 0;
}

int64_t GradientReducer::gradient_bytes() const {
  const at::Tensor& kept = traits_.keep_full ? full_ : shard_;
  return static_cast<int64_t>(kept.nbytes()) + peak_partial_bytes_;
}

}  // namespace zerolab
