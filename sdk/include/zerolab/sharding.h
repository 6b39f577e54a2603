#pragma once
// Kind `sharding`: who owns what, and what moves between ranks.
//
// Order, per step: for each micro-batch {begin_micro_batch(last); forward (unit hooks); backward
// (gradient callbacks); end_micro_batch()}; gradient_norm(); then update() or discard().
// synchronize() before an evaluation or a checkpoint.
// Ranks: [collective] attach, end_micro_batch, gradient_norm, update, synchronize; unit hooks if
// the strategy makes them so.
// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models", arXiv 1910.02054.
//
// Implementing this:
//  - attach() binds memory to every parameter and initializes it; nothing is allocated per step
//    after the first.
//  - Sums are made by Communicator::reduce_scatter or GradientReducer only, so that every
//    strategy adds in the same order.
//  - gradient_norm() covers every trainable element exactly once and gives every rank the same
//    value.
//  - A trainable parameter without a gradient has a zero gradient, and is still decayed.
//  - Collectives are issued in an order that does not depend on local data.

#include <cstdint>
#include <vector>

#include <c10/core/Device.h>

#include "zerolab/communicator.h"
#include "zerolab/exact_norm.h"
#include "zerolab/export.h"
#include "zerolab/gradient_reducer.h"
#include "zerolab/kind.h"
#include "zerolab/optimizer.h"
#include "zerolab/parameters.h"
#include "zerolab/precision.h"
#include "zerolab/state.h"
#include "zerolab/units.h"

namespace zerolab {

/// References outlive the strategy.
struct ShardingContext {
  Parameters& parameters;
  Communicator& world;
  Optimizer& optimizer;
  PrecisionPolicy precision;
  uint64_t seed = 0;
  ReduceEvery reduce_every = ReduceEvery::kMicroBatch;
};

class ZEROLAB_API Sharding : public UnitListener {
 public:
  static constexpr Kind kKind = Kind::kSharding;
  ~Sharding() override;
  /// [setup] Takes over the parameters: lays them out, binds memory, fills them.
  virtual void attach(const ShardingContext& context) = 0;
  /// [hot] [local] Before each forward; `last` says that this micro-batch closes the step.
  virtual void begin_micro_batch(bool last) = 0;
  /// [hot] After each backward.
  virtual void end_micro_batch() = 0;
  /// [hot] Of the reduced gradient sums as they are (before clipping and token weighting).
  virtual GradientNorm gradient_norm() = 0;
  /// [hot] Updates what this rank owns and publishes it.
  virtual void update(const UpdateStep& step) = 0;
  /// Drops the step's gradients; called on every rank instead of update().
  virtual void discard() = 0;
  /// Makes the parameters whole and equal everywhere; nothing to do for strategies that always are.
  virtual void synchronize() {}
  /// This rank's pieces of parameters and optimizer states. Replicated pieces appear on every rank.
  virtual std::vector<StatePiece> state() = 0;
  virtual HeldBytes held_bytes() const = 0;
};

}  // namespace zerolab
