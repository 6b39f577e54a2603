#pragma once
// Optimizer states over the ranges that a rank owns, and the update of those ranges.
// Ranks: local.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/export.h"
#include "zerolab/flat.h"
#include "zerolab/optimizer.h"
#include "zerolab/state.h"

namespace zerolab {

class ZEROLAB_API OptimizerShard {
 public:
  OptimizerShard() = default;
  /// Gives `length` elements of the masters, which start at `flat_offset` in flat space and at
  /// `owned_offset` in owned space: a view that lives as long as they do.
  using Masters =
      std::function<at::Tensor(int64_t flat_offset, int64_t owned_offset, int64_t length)>;
  /// Gives what the model computes with of the same elements, where that is not the masters: a
  /// view, bfloat16 or float16; else an undefined tensor.
  using Copies = Masters;
  /// `rank` as in FlatLayout::ranges: -1 owns everything. States start at zero.
  void allocate(const FlatLayout& layout, int rank, Masters masters, Optimizer& optimizer,
                const Copies& copies = {});
  /// [hot] `gradient` gives the gradients of a range of flat space inside one bucket: float32,
  /// bfloat16 or float16. Copies follow the masters.
  void update(const std::function<at::Tensor(const FlatRange& range)>& gradient,
              const UpdateStep& step);
  /// Makes the copies follow masters that were written by someone else.
  void refresh_copies();
  /// Parameters and states as named pieces of whole tensors.
  std::vector<StatePiece> pieces(const Parameters& parameters) const;
  int64_t bytes() const;

 private:
  Optimizer* optimizer_ = nullptr;
  Masters masters_;
  std::vector<FlatRange> owned_;
  std::vector<FlatPiece> pieces_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> states_;      // each [owned length]
  std::vector<OptimizerRange> ranges_;  // views, made once
};

}  // namespace zerolab
