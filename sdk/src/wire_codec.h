#pragma once
// Values of several slices to bytes and back. Not installed. Ranks: local.
//
// Shapes: `slices` slices of equal length one after the other: values[slices * S] float32,
// bytes[slices * wire_bytes(S)] uint8. Sizes, dtypes and layouts are already checked.

#include <ATen/core/Tensor.h>

#include "zerolab/wire.h"

namespace zerolab::wire_codec {

/// Limits of an int8 block's scale. Smaller ones would lose bits (or be flushed to zero) and have
/// infinite reciprocals; with a larger one the largest magnitude would decode to an infinity.
inline constexpr float kSmallestScale = 0x1p-126F, kLargestScale = 0x1.020406p+121F;

/// With a defined residual [slices * S]: encodes values + residual, and leaves there what that
/// lost.
void encode(WireDtype wire, const at::Tensor& values, const at::Tensor& residual,
            const at::Tensor& bytes, int slices);
void decode(WireDtype wire, const at::Tensor& bytes, const at::Tensor& values, int slices);
/// out[S] = sum of the decoded slices along the fixed tree.
void decode_sum(WireDtype wire, const at::Tensor& bytes, const at::Tensor& out, int slices);

/// The same bits from LibTorch's operators, for devices that have no kernels here. Temporaries
/// take up to five times the values' memory.
void encode_by_operators(WireDtype wire, const at::Tensor& values, const at::Tensor& residual,
                         const at::Tensor& bytes, int slices);
void decode_by_operators(WireDtype wire, const at::Tensor& bytes, const at::Tensor& values,
                         int slices);

}  // namespace zerolab::wire_codec
