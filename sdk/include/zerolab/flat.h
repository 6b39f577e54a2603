#pragma once
// The flat layout: where each parameter lives in one padded 1-D space, and how that space is cut
// into buckets and shards.
//
// Trainable parameters stand unit by unit in forward order; inside a unit those with weight
// decay come first, so that each unit has at most two runs. Every parameter starts on a multiple
// of kRangeAlignment elements. The space is cut into buckets, each a multiple of R *
// kRangeAlignment long; rank r owns the r-th of R equal slices of every bucket. Gaps and padding
// are zero and stay zero.
// Ranks: local; the layout is a pure function of the declarations, the number of ranks and the
// bucket size.

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/communicator.h"
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

class ZEROLAB_API FlatLayout {
 public:
  FlatLayout(const Parameters& parameters, int num_ranks, int64_t bucket_elements);

  int num_ranks() const { return num_ranks_; }
  int64_t length() const { return length_; }  ///< padded elements of the whole space
  int64_t shard_length() const { return length_ / num_ranks_; }  ///< elements that each rank owns
  const std::vector<Slot>& slots() const { return slots_; }      ///< in flat order
  const std::vector<Bucket>& buckets() const { return buckets_; }
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
  int num_ranks_;
  int64_t length_ = 0;
  std::vector<Slot> slots_;
  std::vector<Run> runs_;
  std::vector<Bucket> buckets_;
};

/// [local] Once: allocates flat parameter memory (zeroed), binds every parameter to it, fills them;
/// frozen parameters get memory of their own.
class ZEROLAB_API FlatParameters {
 public:
  FlatParameters() = default;
  void allocate(Parameters& parameters, const FlatLayout& layout, uint64_t seed);
  const at::Tensor& flat() const { return flat_; }
  /// Views of the parameters in a bucket, and in a rank's slice of it.
  at::Tensor bucket(const FlatLayout& layout, size_t index) const;
  at::Tensor slice(const FlatLayout& layout, size_t index, int rank) const;
  /// [collective] Every rank's slices to every rank: the parameters are whole and equal again.
  void publish(const FlatLayout& layout, Communicator& world) const;
  int64_t bytes() const;

 private:
  at::Tensor flat_, frozen_;
};

}  // namespace zerolab
