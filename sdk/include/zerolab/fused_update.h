#pragma once
// One pass over flat ranges for an elementwise optimizer: blocks that stay in the cache, in which
// 16-bit gradients become float32, the rule runs, and 16-bit copies of the masters are written.
//
// Ranks: local. Each element gets the same bits wherever blocks and ranges begin and whatever the
// number of threads, if the rule is a plain loop (a block is a multiple of kRangeAlignment long).

#include <cstdint>
#include <functional>
#include <span>

#include "zerolab/export.h"
#include "zerolab/optimizer.h"

namespace zerolab {

/// Part of a range: n consecutive elements of each.
struct UpdateBlock {
  float* parameters;       ///< masters, to be updated
  const float* gradients;  ///< times UpdateStep::gradient_multiplier
  float* const* states;    ///< in the order of state_names(), to be updated
  int64_t n;               ///< a multiple of kRangeAlignment
  bool decay;
};

/// [hot] Calls `rule` for every element of the ranges once, in blocks, on several threads at once.
/// Gradients, states and copies as OptimizerRange says; gradients are left as they are.
ZEROLAB_API void update_in_blocks(std::span<OptimizerRange> ranges, const UpdateStep& step,
                                  const std::function<void(const UpdateBlock&)>& rule);

}  // namespace zerolab
