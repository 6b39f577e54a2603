#pragma once
// The order of samples: a seeded permutation of the split per epoch, with O(1) memory, striped
// over ranks. Nothing but a counter is needed to go on exactly, on any number of ranks.
//
// Global sample number: counted over the whole run; a step of a batch of n sequences covers the n
// after those of the step before. Inside a step, global micro-batch g = micro * R + rank covers b
// sequences from g * b on: the same sequences for any R with the same total.
// Ranks: local.

#include <cstdint>

namespace zerolab {

class SampleOrder {
 public:
  /// An epoch takes the first `epoch_length` (at most `size`) samples of its permutation.
  SampleOrder(int64_t size, uint64_t seed, int64_t epoch_length)
      : size_(size), seed_(seed), epoch_length_(epoch_length) {}
  /// Sample index of a global sample number.
  int64_t index(int64_t number) const;

 private:
  int64_t size_;
  uint64_t seed_;
  int64_t epoch_length_;
};

/// A pseudo-random bijection of [0, size), keyed. Cycle-walking over a balanced Feistel network.
/// Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002 (generalized
/// Feistel, cycle-walking).
int64_t permute(int64_t index, int64_t size, uint64_t key);

}  // namespace zerolab
