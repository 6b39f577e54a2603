#pragma once
// The global gradient norm as an exact, order-free sum: the same bits however gradients are cut
// over ranks.
//
// The largest magnitude m over all ranks fixes an exponent e; each square is rounded once to a
// multiple of 2^(e - 50) and the rounded squares are added as integers, which is associative.
// Relative error of a norm: at most n * 2^-52 of m^2 for n elements.
// Ranks: gradient_norm is [collective]; the accumulator is local.

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/communicator.h"
#include "zerolab/export.h"

namespace zerolab {

struct GradientNorm {
  double norm = 0;     ///< Euclidean norm over all ranks; infinity when not finite
  bool finite = true;  ///< every element on every rank is finite
};

/// Norm of the union of all ranks' slices (float32, bfloat16 or float16; 1-D, contiguous).
ZEROLAB_API GradientNorm gradient_norm(const std::vector<at::Tensor>& slices, Communicator& world);

/// [local] Largest bit pattern of |x|: orders as magnitudes do; infinities and NaNs are at least
/// 0x7f800000.
ZEROLAB_API uint32_t largest_magnitude_bits(const at::Tensor& x);
/// [local] Sum of squares in units of 2^(2 * exponent - 50), |x| < 2^exponent: high * 2^32 + low
/// with 0 <= low.
struct FixedSum {
  int64_t high = 0, low = 0;
};
ZEROLAB_API FixedSum sum_of_squares(const at::Tensor& x, int exponent);

}  // namespace zerolab
