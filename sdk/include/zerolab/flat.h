#pragma once
// The flat layout: where each parameter lives in one padded 1-D space, and how that space is cut
// into buckets and shards.
//
// Trainable parameters stand unit by unit in forward order; inside a unit those with weight
// decay come first, so that each unit has at most two runs. Every parameter starts on a multiple
// of kRangeAlignment elements. The space is cut into regions, and these into buckets, each a
// multiple of R * kRangeAlignment long; rank r owns the r-th of R equal slices of every bucket.
// Gaps and padding are zero and stay zero.
// Ranks: local; the layout is a pure function of the declarations and the rules.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/export.h"
#include "zerolab/optimizer.h"
#include "zerolab/parameters.h"

namespace zerolab {

/// Where a parameter lives in flat space.
struct Slot {
  size_t parameter = 0;
  int64_t offset = 0, numel = 0;
};

/// A contiguous cut of flat space; elements.
struct Bucket {
  int64_t offset = 0, length = 0;
};

/// A contiguous range of flat space inside one bucket, all with or all without weight decay.
struct FlatRange {
  size_t bucket = 0;
  int64_t offset = 0;  ///< in flat space
  int64_t length = 0;
  int64_t owned_offset = 0;  ///< in the owner's own concatenated space (states live there)
  bool decay = false;
};

/// Part of a parameter in whole-tensor coordinates, and where it lies in flat space.
struct FlatPiece {
  size_t parameter = 0;
  int64_t tensor_offset = 0;  ///< elements from the start of the whole tensor
  int64_t length = 0;
  int64_t flat_offset = 0;
  int64_t owned_offset = 0;
};

/// How flat space is ordered and cut.
struct LayoutRules {
  int num_ranks = 1;            ///< owners
  int64_t bucket_elements = 1;  ///< longest bucket (at least one grain)
  /// Buckets are a multiple of this many ranks' alignment, so that a slice can be cut again among
  /// several groups of owners; a multiple of num_ranks, or 0 for num_ranks.
  int grain_ranks = 0;
  /// A region of its own, and buckets of its own, for each unit; otherwise one region holds all.
  bool cut_at_units = false;
  /// With cut_at_units: parameters of fewer elements stand together in region 0.
  int64_t region_zero_below = 0;
};

/// A run of whole buckets. Without cut_at_units there is one; with it, region 0 holds small
/// parameters and region 1 + u what else unit u has. A region may be empty.
struct Region {
  int64_t offset = 0, length = 0;  ///< elements, padding included
  size_t first_bucket = 0, end_bucket = 0;
  int64_t num_buckets() const { return static_cast<int64_t>(end_bucket - first_bucket); }
};

class ZEROLAB_API FlatLayout {
 public:
  FlatLayout(const Parameters& parameters, const LayoutRules& rules);

  int num_ranks() const { return num_ranks_; }
  int64_t length() const { return length_; }  ///< padded elements of the whole space
  int64_t shard_length() const { return length_ / num_ranks_; }  ///< elements that each rank owns
  const std::vector<Slot>& slots() const { return slots_; }      ///< in flat order
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const std::vector<Region>& regions() const { return regions_; }
  int64_t longest_bucket() const { return longest_bucket_; }
  /// First and last bucket that hold elements of a slot; none (first > last) for an empty one.
  std::pair<size_t, size_t> slot_buckets(size_t slot) const;
  int64_t slice_length(size_t bucket) const { return buckets_[bucket].length / num_ranks_; }
  /// Start of a rank's slice of a bucket, in flat space.
  int64_t slice_offset(size_t bucket, int rank) const {
    return buckets_[bucket].offset + rank * slice_length(bucket);
  }
  /// Start of a bucket's slice in a rank's concatenated owned space.
  int64_t owned_offset(size_t bucket) const { return buckets_[bucket].offset / num_ranks_; }

  /// What `rank` owns; rank -1 means all of flat space (a replica's view), still cut at buckets.
  std::vector<FlatRange> ranges(int rank) const;
  std::vector<FlatPiece> pieces(int rank) const;

 private:
  struct Run {
    int64_t offset, length;
    bool decay;
  };
  void add_unit(const Parameters& parameters, int unit, const LayoutRules& rules, bool small);
  void close_region(int64_t start, const LayoutRules& rules);
  size_t bucket_at(int64_t offset) const;

  int num_ranks_;
  int64_t length_ = 0, longest_bucket_ = 0;
  std::vector<Slot> slots_;
  std::vector<Run> runs_;
  std::vector<Bucket> buckets_;
  std::vector<Region> regions_;
};

/// Elements of frozen parameters, each on a multiple of kRangeAlignment: they live outside flat
/// space, whole on every rank.
ZEROLAB_API int64_t frozen_length(const Parameters& parameters);
/// [local] Gives frozen parameters memory of their own, [frozen_length], and fills them.
ZEROLAB_API at::Tensor allocate_frozen(Parameters& parameters, uint64_t seed,
                                       at::ScalarType dtype = at::kFloat);

}  // namespace zerolab
