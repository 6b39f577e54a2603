#pragma once
// Kind `sharding`: who owns what, and what moves between ranks.
//
// Order: check_ranks(); attach(); then per step, for each micro-batch {begin_micro_batch(last);
// begin_pass(); forward (unit hooks); backward (unit hooks, gradient callbacks); end_pass();
// end_micro_batch()}; gradient_norm(); then update() or discard(). Evaluation is passes alone.
// synchronize() before an evaluation or a checkpoint.
// To go on from a checkpoint, the host writes what state() and local_state() view between attach()
// and the first step, or between steps, and calls state_restored().
// Ranks: [collective] attach, end_micro_batch, gradient_norm, update, synchronize, state_restored;
// unit hooks if the strategy makes them so.
// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models", arXiv 1910.02054.
//
// Implementing this:
//  - attach() binds memory to every parameter and initializes it; what a step needs is allocated
//    once, parameters that are gathered and freed aside.
//  - Sums are made by Communicator::reduce_scatter or GradientReducer only, so that every
//    strategy adds in the same order.
//  - gradient_norm() covers every trainable element exactly once and gives every rank the same
//    value.
//  - A trainable parameter without a gradient has a zero gradient, and is still decayed.
//  - What state() views changes in update(), discard() and synchronize() only, and its pieces are
//    the same at every call: a checkpoint may be copied while the next step runs.
//  - Collectives are issued in an order that does not depend on local data.
//  - footprint() states what held_bytes() and the communicator's counters will say, from the
//    declarations alone; a strategy that states none is left out of predictions.

#include <cstdint>
#include <optional>
#include <vector>

#include <c10/core/Device.h>

#include "zerolab/communicator.h"
#include "zerolab/exact_norm.h"
#include "zerolab/export.h"
#include "zerolab/footprint.h"
#include "zerolab/gradient_reducer.h"
#include "zerolab/kind.h"
#include "zerolab/optimizer.h"
#include "zerolab/parameters.h"
#include "zerolab/precision.h"
#include "zerolab/state.h"
#include "zerolab/units.h"

namespace zerolab {

/// References outlive the strategy, but for its destructor: that touches none of them.
struct ShardingContext {
  Parameters& parameters;
  Communicator& world;
  Optimizer& optimizer;
  PrecisionPolicy precision;
  uint64_t seed = 0;
  ReduceEvery reduce_every = ReduceEvery::kMicroBatch;
};

/// What a prediction may depend on. The parameters are declared, not bound.
struct FootprintRequest {
  const Parameters& parameters;
  int num_ranks = 1;
  PrecisionPolicy precision;
  int64_t num_states = 2;     ///< per element, of the optimizer
  int64_t micro_batches = 1;  ///< per step
  ReduceEvery reduce_every = ReduceEvery::kMicroBatch;
};

class ZEROLAB_API Sharding : public UnitListener {
 public:
  static constexpr Kind kKind = Kind::kSharding;
  ~Sharding() override;
  /// [local] Asked before anything starts. Errors: ConfigError if the options do not suit so many
  /// ranks.
  virtual void check_ranks(int /*num_ranks*/) const {}
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
  /// What of this rank's state no whole tensor holds, the same names on every rank.
  virtual std::vector<LocalState> local_state() { return {}; }
  /// [collective] After the memory that state() views was written: parameters that the model
  /// computes with follow. Nothing to do where they are that memory.
  virtual void state_restored() {}
  virtual HeldBytes held_bytes() const = 0;
  /// [local] Before or after attach(); nothing from a strategy that predicts nothing. Each unit
  /// counts as run once a micro-batch. Errors: as check_ranks().
  virtual std::optional<Footprint> footprint(const FootprintRequest& /*request*/) const {
    return std::nullopt;
  }
  /// [local] Before or after attach(). How far losses may be from those of an exact strategy,
  /// relative; 0: not a bit. Only a wire that rounds (zerolab/wire.h) has a reason for more.
  virtual double loss_tolerance() const { return 0; }
};

}  // namespace zerolab
