#pragma once
// bfloat16 and float16 from and to float32, value by value and without branches, so that a loop
// around them becomes a vector loop. Rounds to nearest even; NaN stays NaN. Not installed.

#include <bit>
#include <cstdint>

namespace zerolab::sixteen_bits {

inline constexpr uint32_t kSign = 0x80000000, kInfinity = 0x7f800000;

inline float from_bf16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

inline uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & ~kSign) > kInfinity ? 0x7fc0 : even);
}

/// `a` where `condition` holds, else `b`, by masks: a conditional float operation would become a
/// branch, and the loop none of vectors.
inline uint32_t choose(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = 0U - static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

/// float16's exponent has a bias of 15, float32's one of 127.
inline constexpr uint32_t kRebias = (127 - 15) << 23;
inline constexpr uint32_t kSmallestNormal = kRebias + (1 << 23);  // 2^-14, float16's
inline constexpr uint32_t kBeyond = kRebias + (31 << 23);         // 2^16

inline float from_fp16(uint16_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(value & 0x7fff) << 13;
  // A subnormal is m * 2^-24: the difference of two normal numbers, exact.
  const float small =
      std::bit_cast<float>(kSmallestNormal | magnitude) - std::bit_cast<float>(kSmallestNormal);
  const uint32_t finite =
      choose(magnitude < (1U << 23), std::bit_cast<uint32_t>(small), magnitude + kRebias);
  const bool no_number = magnitude >= (31U << 23);  // infinity or NaN
  return std::bit_cast<float>(sign | choose(no_number, magnitude | kInfinity, finite));
}

inline uint16_t to_fp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~kSign;
  // Below 2^-14 the last place is 2^-24, as that of a float32 from 0.5 to 1: adding rounds.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
                         std::bit_cast<uint32_t>(0.5F);
  const uint32_t normal = (magnitude - kRebias + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const uint32_t finite = choose(magnitude < kSmallestNormal, small, normal);
  const uint32_t bounded = choose(magnitude < kBeyond, finite, 0x7c00);
  const uint32_t rounded = choose(magnitude > kInfinity, 0x7e00, bounded);
  return static_cast<uint16_t>((bits & kSign) >> 16 | rounded);
}

}  // namespace zerolab::sixteen_bits
