#pragma once
// What a forward pass keeps for its backward, estimated from the declared matrices.
//
// Each matrix [out, in] is taken for a linear map whose input and output are kept for every token.
// In a transformer block that counts what norms and attention keep, too; masks of dropout and
// attention weights that are computed step by step are not counted.
// With activation checkpointing a unit keeps its input, and one unit at a time is there whole; the
// root unit is not recomputed.

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "zerolab/parameters.h"

namespace zerolab {

/// Bytes for `tokens` tokens of one micro-batch, in the dtype that the model computes in.
int64_t activation_bytes(const Parameters& parameters, int64_t tokens, at::ScalarType compute,
                         bool activation_checkpointing);

}  // namespace zerolab
