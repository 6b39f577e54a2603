#pragma once
// Kind `model`: the network and its loss.
//
// Shapes: B sequences, T tokens, V vocabulary.
// Order: constructed from its options; declare() once; then loss() per micro-batch and logits()
// for generation.
// Ranks: local. A model never communicates.
//
// Implementing this:
//  - declare() names every parameter once, unit by unit in forward order; weights used by
//    several units go to the root unit.
//  - A parameter is read in its own unit's function alone, a root parameter in any: elsewhere it
//    may have no memory (a strategy that shards parameters frees it), and reading it is a crash.
//  - loss() runs its blocks through units.run() and draws dropout only from the scope.
//  - loss() returns a sum over counted targets, not a mean: the trainer divides once, over all
//    ranks.

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "zerolab/export.h"
#include "zerolab/kind.h"
#include "zerolab/parameters.h"
#include "zerolab/units.h"

namespace zerolab {

/// A target that is not counted in the loss.
inline constexpr int64_t kIgnoredTarget = -100;

struct Batch {
  at::Tensor tokens;        ///< [B, T] int64
  at::Tensor targets;       ///< [B, T] int64; kIgnoredTarget where not counted
  int64_t num_targets = 0;  ///< counted targets
};

struct ModelContext {
  int64_t vocab_size = 0;
  int64_t sequence_length = 0;  ///< the longest T that will be asked for
};

class ZEROLAB_API Model {
 public:
  static constexpr Kind kKind = Kind::kModel;
  virtual ~Model();
  /// [setup] Declares every parameter. Errors: ConfigError if the context does not fit the options.
  virtual void declare(Parameters& parameters, const ModelContext& context) = 0;
  /// [hot] Sum of the loss over counted targets: a scalar, float32, that requires grad when
  /// training.
  virtual at::Tensor loss(const Batch& batch, Units& units) = 0;
  /// [B, T] tokens to [B, T, V] logits.
  virtual at::Tensor logits(const at::Tensor& tokens_BT, Units& units) = 0;
};

}  // namespace zerolab
