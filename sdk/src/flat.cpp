#include "zerolab/flat.h"

#include <algorithm>
#include <memory>

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

namespace zerolab {
namespace {

int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

FlatLayout::FlatLayout(const Parameters& parameters, int num_ranks, int64_t bucket_elements)
    : num_ranks_(num_ranks) {
  for (int unit = 0; unit < parameters.num_units(); ++unit) {
    for (const bool decay : {true, false}) {
      const int64_t start = length_;
      for (size_t i = 0; i < parameters.size(); ++i) {
        const ParameterInfo& info = parameters.info(i);
        if (info.unit != unit || info.decay != decay || !info.requires_grad) continue;
        slots_.push_back({i, length_, info.numel});
        length_ += round_up(info.numel, kRangeAlignment);
      }
      if (length_ == start) continue;
      if (!runs_.empty() && runs_.back().decay == decay) {
        runs_.back().length += length_ - start;
      } else {
        runs_.push_back({start, length_ - start, decay});
      }
    }
  }
  const int64_t grain = num_ranks * kRangeAlignment;
  const int64_t padded = round_up(length_, grain);
  if (!runs_.empty()) runs_.back().length += padded - length_;
  length_ = padded;
  const int64_t bucket_length = std::max(grain, bucket_elements / grain * grain);
  for (int64_t offset = 0; offset < length_; offset += bucket_length) {
    buckets_.push_back({offset, std::min(bucket_length, length_ - offset)});
  }
}

std::vector<FlatRange> FlatLayout::ranges(int rank) const {
  std::vector<FlatRange> result;
  size_t run = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const int64_t begin = rank < 0 ? buckets_[b].offset : slice_offset(b, rank);
    const int64_t end = begin + (rank < 0 ? buckets_[b].length : slice_length(b));
    const int64_t owned = rank < 0 ? begin : owned_offset(b);
    while (run < runs_.size() && runs_[run].offset + runs_[run].length <= begin) ++run;
    for (size_t r = run; r < runs_.size() && runs_[r].offset < end; ++r) {
      const int64_t from = std::max(begin, runs_[r].offset);
      const int64_t to = std::min(end, runs_[r].offset + runs_[r].length);
      result.push_back({b, from, to - from, owned + from - begin, runs_[r].decay});
    }
  }
  return result;
}

std::vector<FlatPiece> FlatLayout::pieces(int rank) const {
  std::vector<FlatPiece> result;
  for (const Slot& slot : slots_) {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      const int64_t begin = rank < 0 ? buckets_[b].offset : slice_offset(b, rank);
      const int64_t end = begin + (rank < 0 ? buckets_[b].length : slice_length(b));
      const int64_t owned = rank < 0 ? begin : owned_offset(b);
      const int64_t from = std::max(begin, slot.offset);
      const int64_t to = std::min(end, slot.offset + slot.numel);
      if (from < to)
        result.push_back(
            {slot.parameter, from - slot.offset, to - from, from, owned + from - begin});
    }
  }
  return result;
}

void FlatParameters::allocate(Parameters& parameters, const FlatLayout& layout, uint64_t seed) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  int64_t frozen_length = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters.info(i).requires_grad)
      frozen_length += round_up(parameters.info(i).numel, kRangeAlignment);
  }
  flat_ = at::zeros({layout.length()}, options);
  frozen_ = at::zeros({frozen_length}, options);
  for (const Slot& slot : layout.slots()) parameters.bind(slot.parameter, flat_, slot.offset);
  int64_t offset = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters.info(i).requires_grad) {
      parameters.bind(i, frozen_, offset);
      offset += round_up(parameters.info(i).numel, kRangeAlignment);
    }
    parameters.initialize(i, seed);
  }
}

at::Tensor FlatParameters::bucket(const FlatLayout& layout, size_t index) const {
  return flat_.narrow(0, layout.buckets()[index].offset, layout.buckets()[index].length);
}

at::Tensor FlatParameters::slice(const FlatLayout& layout, size_t index, int rank) const {
  return flat_.narrow(0, layout.slice_offset(index, rank), layout.slice_length(index));
}

void FlatParameters::publish(const FlatLayout& layout, Communicator& world) const {
  std::vector<std::unique_ptr<Work>> works;
  for (size_t b = 0; b < layout.buckets().size(); ++b) {
    works.push_back(world.all_gather(bucket(layout, b), slice(layout, b, world.rank())));
  }
  for (const auto& work : works) work->wait();
}

int64_t FlatParameters::bytes() const {
  return static_cast<int64_t>(flat_.nbytes() + frozen_.nbytes());
}

}  // namespace zerolab
