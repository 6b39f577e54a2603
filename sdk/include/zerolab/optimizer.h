#pragma once
// Kind `optimizer`: an elementwise update rule on flat ranges. It does not know about sharding:
// a strategy hands it the ranges that this rank owns.
//
// Ranks: local.
//
// Implementing this:
//  - update() is elementwise and gives each element the same result wherever the range begins or
//    ends (ranges start and end on multiples of kRangeAlignment elements; no approximate
//    reciprocals).
//  - update() applies step.gradient_multiplier itself, is called without grad mode, and may get
//    no range at all.
//  - Unless takes_low_precision(), gradients are float32 and there are no copies: who owns the
//    range casts before and after. An optimizer that does it itself saves these passes over
//    memory (update_in_blocks() of zerolab/fused_update.h does).
//  - States are flat, float32, zero at the start, and named as PyTorch names them.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/export.h"
#include "zerolab/kind.h"

namespace zerolab {

/// Ranges start and end on multiples of this many elements (one AVX-512 vector of floats).
inline constexpr int64_t kRangeAlignment = 16;

/// One contiguous range of flat parameters, all with or all without weight decay. Tensors are 1-D,
/// of one length, and float32 unless it says otherwise.
struct OptimizerRange {
  at::Tensor parameters;           ///< masters; updated in place
  at::Tensor gradients;            ///< float32, bfloat16 or float16; may be overwritten
  std::vector<at::Tensor> states;  ///< in the order of state_names(); updated in place
  bool decay = false;
  /// What the model computes with, if that is not the masters: bfloat16 or float16, to be written
  /// (the masters, rounded to nearest even). Undefined otherwise.
  at::Tensor copy;
};

struct UpdateStep {
  double lr = 0;
  int64_t step = 1;  ///< number of this applied update, from 1; skipped steps do not count
  double gradient_multiplier =
      1;  ///< each gradient counts times this (clipping, token weighting); float32
};

class ZEROLAB_API Optimizer {
 public:
  static constexpr Kind kKind = Kind::kOptimizer;
  virtual ~Optimizer();
  /// Names of the per-element states, e.g. {"exp_avg", "exp_avg_sq"}.
  virtual std::vector<std::string> state_names() const = 0;
  /// Whether update() takes gradients of any dtype and writes copies.
  virtual bool takes_low_precision() const { return false; }
  /// [hot] Updates ranges in place; all that this rank owns, in one call.
  virtual void update(std::span<OptimizerRange> ranges, const UpdateStep& step) = 0;
};

}  // namespace zerolab
