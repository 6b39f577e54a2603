// The wire formats' arithmetic on the CPU, block by block. `include/zerolab/wire.h` has the
// formulas and the layout.

#include "wire_codec.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "zerolab/communicator.h"
#include "zerolab/vector_clones.h"

#include "sixteen_bits.h"

namespace zerolab::wire_codec {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000, kMagnitudeMask = 0x7fffffff;
constexpr int64_t kGrainBlocks = 64;

// Each of these works on one block: n <= kWireBlock values. The compiler makes vector loops of
// them, so there are no branches inside.

ZEROLAB_VECTOR_CLONES void round_to_bf16(const float* __restrict x, int64_t n,
                                         uint16_t* __restrict rounded) {
  for (int64_t i = 0; i < n; ++i) rounded[i] = sixteen_bits::to_bf16(x[i]);
}

ZEROLAB_VECTOR_CLONES void widen_bf16(const uint16_t* __restrict rounded, int64_t n,
                                      float* __restrict x) {
  for (int64_t i = 0; i < n; ++i) x[i] = sixteen_bits::from_bf16(rounded[i]);
}

/// Bits of the largest magnitude; above those of every number if there is an infinity or a NaN.
ZEROLAB_VECTOR_CLONES uint32_t largest_bits(const float* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & kMagnitudeMask);
  return largest;
}

/// rint(x / scale). Adding 1.5 * 2^23 leaves the rounded value in the low bits of the float.
ZEROLAB_VECTOR_CLONES void round_to_int8(const float* __restrict x, int64_t n, float inverse,
                                         int8_t* __restrict rounded) {
  constexpr float kMagic = 12582912.0F;
  for (int64_t i = 0; i < n; ++i) {
    rounded[i] = static_cast<int8_t>(std::bit_cast<int32_t>(x[i] * inverse + kMagic) -
                                     std::bit_cast<int32_t>(kMagic));
  }
}

ZEROLAB_VECTOR_CLONES void widen_int8(const int8_t* __restrict rounded, int64_t n, float scale,
                                      float* __restrict x) {
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(rounded[i]) * scale;
}

ZEROLAB_VECTOR_CLONES void sum_two(float* out, const float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

/// What encoding lost, where there is a number to subtract.
ZEROLAB_VECTOR_CLONES void keep_loss(const float* __restrict x, const float* __restrict decoded,
                                     int64_t n, float* __restrict residual) {
  for (int64_t i = 0; i < n; ++i) {
    const bool finite = (std::bit_cast<uint32_t>(decoded[i]) & kMagnitudeMask) < kInfinityBits;
    residual[i] = finite ? x[i] - decoded[i] : residual[i];
  }
}

float scale_of(float largest) {
  return largest > 0 ? std::clamp(largest / 127, kSmallestScale, kLargestScale) : 0;
}

/// A block within its slice of `length` values.
struct Block {
  int64_t first, n, length;
  int64_t scale_at() const { return length + first / kWireBlock * int64_t{sizeof(float)}; }
};

void encode_int8(const float* x, const Block& block, uint8_t* slice) {
  auto* rounded = reinterpret_cast<int8_t*>(slice + block.first);
  const uint32_t largest = largest_bits(x, block.n);
  float scale = std::numeric_limits<float>::quiet_NaN();
  if (largest < kInfinityBits) scale = scale_of(std::bit_cast<float>(largest));
  // Not an ordinary scale (there is nothing, or no number, to send): zero times it says so.
  if (scale > 0) {
    round_to_int8(x, block.n, 1 / scale, rounded);
  } else {
    std::fill_n(rounded, block.n, int8_t{0});
  }
  std::memcpy(slice + block.scale_at(), &scale, sizeof scale);
}

void encode_block(WireDtype wire, const float* x, const Block& block, uint8_t* slice) {
  uint16_t halves[kWireBlock];
  switch (wire) {
    case WireDtype::kFloat32:
      std::memcpy(slice + 4 * block.first, x, static_cast<size_t>(4 * block.n));
      break;
    case WireDtype::kBFloat16:
      round_to_bf16(x, block.n, halves);
      std::memcpy(slice + 2 * block.first, halves, static_cast<size_t>(2 * block.n));
      break;
    case WireDtype::kInt8:
      encode_int8(x, block, slice);
      break;
  }
}

void decode_block(WireDtype wire, const uint8_t* slice, const Block& block, float* x) {
  uint16_t halves[kWireBlock];
  float scale = 0;
  switch (wire) {
    case WireDtype::kFloat32:
      std::memcpy(x, slice + 4 * block.first, static_cast<size_t>(4 * block.n));
      break;
    case WireDtype::kBFloat16:
      std::memcpy(halves, slice + 2 * block.first, static_cast<size_t>(2 * block.n));
      widen_bf16(halves, block.n, x);
      break;
    case WireDtype::kInt8:
      std::memcpy(&scale, slice + block.scale_at(), sizeof scale);
      widen_int8(reinterpret_cast<const int8_t*>(slice + block.first), block.n, scale, x);
      break;
  }
}

/// Calls use(slice, block) for each block of each slice, in parallel; a block is never shared.
template <class Use>
void for_each_block(int slices, int64_t length, const Use& use) {
  const int64_t blocks = (length + kWireBlock - 1) / kWireBlock;
  at::parallel_for(0, slices * blocks, kGrainBlocks, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kWireBlock;
      use(i / blocks, Block{first, std::min(kWireBlock, length - first), length});
    }
  });
}

}  // namespace

void encode(WireDtype wire, const at::Tensor& values, const at::Tensor& residual,
            const at::Tensor& bytes, int slices) {
  if (!values.is_cpu()) return encode_by_operators(wire, values, residual, bytes, slices);
  const int64_t length = values.numel() / slices, slice_bytes = wire_bytes(wire, length);
  const auto* x = values.const_data_ptr<float>();
  auto* lost = residual.defined() ? residual.mutable_data_ptr<float>() : nullptr;
  auto* out = bytes.mutable_data_ptr<uint8_t>();
  for_each_block(slices, length, [&](int64_t slice, const Block& block) {
    const int64_t at = slice * length + block.first;
    uint8_t* to = out + slice * slice_bytes;
    if (lost == nullptr) return encode_block(wire, x + at, block, to);
    float corrected[kWireBlock], decoded[kWireBlock];
    sum_two(corrected, x + at, lost + at, block.n);
    encode_block(wire, corrected, block, to);
    decode_block(wire, to, block, decoded);
    keep_loss(corrected, decoded, block.n, lost + at);
  });
}

void decode(WireDtype wire, const at::Tensor& bytes, const at::Tensor& values, int slices) {
  if (!values.is_cpu()) return decode_by_operators(wire, bytes, values, slices);
  const int64_t length = values.numel() / slices, slice_bytes = wire_bytes(wire, length);
  const auto* in = bytes.const_data_ptr<uint8_t>();
  auto* x = values.mutable_data_ptr<float>();
  for_each_block(slices, length, [&](int64_t slice, const Block& block) {
    decode_block(wire, in + slice * slice_bytes, block, x + slice * length + block.first);
  });
}

void decode_sum(WireDtype wire, const at::Tensor& bytes, const at::Tensor& out, int slices) {
  const int64_t length = out.numel(), slice_bytes = wire_bytes(wire, length);
  if (!out.is_cpu()) {
    const at::Tensor values = at::empty({slices * length}, out.options());
    decode_by_operators(wire, bytes, values, slices);
    return tree_sum(out, values, slices);
  }
  const auto* in = bytes.const_data_ptr<uint8_t>();
  auto* sums = out.mutable_data_ptr<float>();
  const int64_t blocks = (length + kWireBlock - 1) / kWireBlock;
  at::parallel_for(
      0, blocks, std::max<int64_t>(1, kGrainBlocks / slices), [&](int64_t begin, int64_t end) {
        std::vector<float> x(static_cast<size_t>(slices * kWireBlock));  // stays in the cache
        const auto decoded = [&](int slice) { return x.data() + slice * kWireBlock; };
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i * kWireBlock;
          const Block block{first, std::min(kWireBlock, length - first), length};
          for (int r = 0; r < slices; ++r)
            decode_block(wire, in + r * slice_bytes, block, decoded(r));
          for (int s = 1; s < slices; s *= 2) {
            for (int r = 0; r + s < slices; r += 2 * s)
              sum_two(decoded(r), decoded(r), decoded(r + s), block.n);
          }
          std::copy_n(decoded(0), block.n, sums + first);
        }
      });
}

}  // namespace zerolab::wire_codec
