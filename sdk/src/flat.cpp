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

FlatLayout::FlatLayout(const Parameters& parameters, const LayoutRules& rules)
    : num_ranks_(rules.num_ranks) {
  const int num_units = parameters.num_units();
  if (!rules.cut_at_units) {
    for (int unit = 0; unit < num_units; ++unit) add_unit(parameters, unit, rules, false);
    close_region(0, rules);
    return;
  }
  for (int unit = 0; unit < num_units; ++unit) add_unit(parameters, unit, rules, true);
  close_region(0, rules);
  for (int unit = 0; unit < num_units; ++unit) {
    const int64_t start = length_;
    add_unit(parameters, unit, rules, false);
    close_region(start, rules);
  }
}

/// With cut_at_units a unit comes twice: its small parameters, then the others.
void FlatLayout::add_unit(const Parameters& parameters, int unit, const LayoutRules& rules,
                          bool small) {
  for (const bool decay : {true, false}) {
    const int64_t start = length_;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const ParameterInfo& info = parameters.info(i);
      if (info.unit != unit || info.decay != decay || !info.requires_grad) continue;
      if (rules.cut_at_units && (info.numel < rules.region_zero_below) != small) continue;
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

void FlatLayout::close_region(int64_t start, const LayoutRules& rules) {
  const int64_t grain = std::max(rules.num_ranks, rules.grain_ranks) * kRangeAlignment;
  const int64_t padded = start + round_up(length_ - start, grain);
  if (padded > start) runs_.back().length += padded - length_;
  length_ = padded;
  Region region{start, length_ - start, buckets_.size(), 0};
  const int64_t wanted = std::max(grain, rules.bucket_elements / grain * grain);
  const int64_t bucket_length = std::min(wanted, std::max(grain, region.length));
  for (int64_t offset = start; offset < length_; offset += bucket_length) {
    buckets_.push_back({offset, std::min(bucket_length, length_ - offset)});
    longest_bucket_ = std::max(longest_bucket_, buckets_.back().length);
  }
  region.end_bucket = buckets_.size();
  regions_.push_back(region);
}

size_t FlatLayout::bucket_at(int64_t offset) const {
  const auto after =
      std::upper_bound(buckets_.begin(), buckets_.end(), offset,
                       [](int64_t value, const Bucket& bucket) { return value < bucket.offset; });
  return static_cast<size_t>(after - buckets_.begin()) - 1;
}

std::pair<size_t, size_t> FlatLayout::slot_buckets(size_t slot) const {
  const Slot& s = slots_[slot];
  if (s.numel == 0) return {1, 0};
  return {bucket_at(s.offset), bucket_at(s.offset + s.numel - 1)};
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
  for (size_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    const auto [first, last] = slot_buckets(s);
    for (size_t b = first; b <= last && first <= last; ++b) {
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

int64_t frozen_length(const Parameters& parameters) {
  int64_t length = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterInfo& info = parameters.info(i);
    if (!info.requires_grad) length += round_up(info.numel, kRangeAlignment);
  }
  return length;
}

at::Tensor allocate_frozen(Parameters& parameters, uint64_t seed, at::ScalarType dtype) {
  at::Tensor memory = at::zeros({frozen_length(parameters)}, at::TensorOptions().dtype(dtype));
  int64_t offset = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters.info(i).requires_grad) continue;
    parameters.bind(i, memory, offset);
    parameters.initialize(i, seed);
    offset += round_up(parameters.info(i).numel, kRangeAlignment);
  }
  return memory;
}

}  // namespace zerolab
