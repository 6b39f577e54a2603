#pragma once
// Fills parameters that were laid out flat, one after the other, and exact copies of what a rank
// owns of them. Not installed. Ranks: local.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/flat.h"
#include "zerolab/parameters.h"

namespace zerolab {

class InitialFill {
 public:
  /// `masters`: [owned length] float32 of what `rank` owns (as in FlatLayout::pieces), or undefined
  /// where the parameters themselves are exact.
  InitialFill(Parameters& parameters, const FlatLayout& layout, int rank, uint64_t seed,
              at::Tensor masters);
  /// The next slot of the layout, which is bound.
  void fill_next();

 private:
  Parameters& parameters_;
  const FlatLayout& layout_;
  uint64_t seed_;
  at::Tensor masters_;
  std::vector<FlatPiece> pieces_;  // in the order of slots
  size_t slot_ = 0, piece_ = 0;
};

}  // namespace zerolab
