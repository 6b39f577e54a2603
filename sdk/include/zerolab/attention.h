#pragma once
// Attention for models: over a batch's own tokens, or over those that a cache has kept.
//
// Shapes: B sequences, T tokens that are read now, S that are there in all, D width of a head.
// Order: inside a unit of a block; remember() before attend() where there is a cache.
// Ranks: local.
// Source: Vaswani et al., arXiv 1706.03762, section 3.2.1; grouped queries: Ainslie et al., arXiv
// 2305.13245.

#include <cstddef>

#include <ATen/core/Tensor.h>

#include "zerolab/export.h"
#include "zerolab/model.h"
#include "zerolab/units.h"

namespace zerolab {

struct KeysAndValues {
  at::Tensor keys, values;  ///< [B, heads, S, D]
};

/// [hot] Puts the keys and values of the next T tokens behind the cache.length that `layer` holds,
/// and gives views of all of them. A layer's first tokens make its memory, for cache.capacity. The
/// model adds T to cache.length once, after its last layer. Not in training.
/// Errors: Error if there is no room for them.
ZEROLAB_API KeysAndValues remember(KeyValueCache& cache, size_t layer, const at::Tensor& keys_BHTD,
                                   const at::Tensor& values_BHTD);

/// [hot] softmax(q k^T / sqrt(D)) v. The queries are those of the last T of S tokens. Causal: each
/// sees itself and what comes before it. There may be several heads of queries to one of keys.
/// Dropout on the weights above 0 computes training step by step: the fused kernel would draw from
/// a global generator.
ZEROLAB_API at::Tensor attend(const at::Tensor& queries_BHTD, const KeysAndValues& tokens,
                              bool causal, double dropout, UnitScope& scope);

}  // namespace zerolab
