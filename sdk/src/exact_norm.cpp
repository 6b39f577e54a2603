#include "zerolab/exact_norm.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include <ATen/Parallel.h>

#include "zerolab/vector_clones.h"

#include "sixteen_bits.h"

namespace zerolab {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000;
constexpr int kFractionBits = 50;
constexpr int64_t kBlock = 4096;  // 2^12 squares below 2^50 fit an int64
constexpr int64_t kGrain = 1 << 16;

ZEROLAB_VECTOR_CLONES uint32_t max_bits(const float* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffU);
  return largest;
}

ZEROLAB_VECTOR_CLONES void from_bf16(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = sixteen_bits::from_bf16(x[i]);
}

ZEROLAB_VECTOR_CLONES void from_fp16(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = sixteen_bits::from_fp16(x[i]);
}

/// Sum of rint(x^2 * scale). Adding 1.5 * 2^52 leaves the rounded value in the low bits of the
/// double.
ZEROLAB_VECTOR_CLONES int64_t sum_block(const float* x, int64_t n, double scale) {
  constexpr double kMagic = 6755399441055744.0;
  int64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double d = x[i];
    sum += std::bit_cast<int64_t>(d * d * scale + kMagic) - std::bit_cast<int64_t>(kMagic);
  }
  return sum;
}

/// Floats in blocks of at most kBlock, whatever the dtype.
template <class Take>
void for_blocks(const at::Tensor& x, int64_t begin, int64_t end, const Take& take) {
  if (x.scalar_type() == at::kFloat) {
    const float* data = x.const_data_ptr<float>();
    for (int64_t at = begin; at < end; at += kBlock) take(data + at, std::min(kBlock, end - at));
    return;
  }
  const auto* data = static_cast<const uint16_t*>(x.const_data_ptr());
  const auto convert = x.scalar_type() == at::kBFloat16 ? from_bf16 : from_fp16;
  float floats[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    convert(data + at, n, floats);
    take(floats, n);
  }
}

}  // namespace

uint32_t largest_magnitude_bits(const at::Tensor& x) {
  std::atomic<uint32_t> largest{0};
  at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    uint32_t mine = 0;
    for_blocks(x, begin, end,
               [&](const float* block, int64_t n) { mine = std::max(mine, max_bits(block, n)); });
    uint32_t seen = largest.load();
    while (mine > seen && !largest.compare_exchange_weak(seen, mine)) {
    }
  });
  return largest;
}

FixedSum sum_of_squares(const at::Tensor& x, int exponent) {
  const double scale = std::ldexp(1.0, kFractionBits - 2 * exponent);
  std::atomic<int64_t> high{0}, low{0};
  at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    FixedSum mine;
    for_blocks(x, begin, end, [&](const float* block, int64_t n) {
      const int64_t sum = sum_block(block, n, scale);
      mine.high += sum >> 32;
      mine.low += sum & 0xffffffff;
    });
    high += mine.high;
    low += mine.low;
  });
  return {high, low};
}

GradientNorm gradient_norm(const std::vector<at::Tensor>& slices, Communicator& world) {
  uint32_t largest = 0;
  for (const at::Tensor& slice : slices) largest = std::max(largest, largest_magnitude_bits(slice));
  for (int64_t bits : world.gather_control(std::vector<int64_t>{largest})) {
    largest = std::max(largest, static_cast<uint32_t>(bits));
  }
  if (largest >= kInfinityBits) return {std::numeric_limits<double>::infinity(), false};
  if (largest == 0) return {0, true};
  int exponent = 0;
  std::frexp(std::bit_cast<float>(largest), &exponent);
  FixedSum sum;
  for (const at::Tensor& slice : slices) {
    const FixedSum part = sum_of_squares(slice, exponent);
    sum.high += part.high;
    sum.low += part.low;
  }
  const auto parts = world.gather_control(std::vector<int64_t>{sum.high, sum.low});
  sum = {};
  for (size_t i = 0; i + 1 < parts.size(); i += 2) {
    sum.high += parts[i];
    sum.low += parts[i + 1];
  }
  sum.high += sum.low >> 32;
  sum.low &= 0xffffffff;
  const double squares =
      static_cast<double>(sum.high) * 4294967296.0 + static_cast<double>(sum.low);
  // sqrt(squares * 2^(2e - 50)) without leaving the range of doubles: the exponent is even.
  return {std::ldexp(std::sqrt(squares), exponent - kFractionBits / 2), true};
}

}  // namespace zerolab
