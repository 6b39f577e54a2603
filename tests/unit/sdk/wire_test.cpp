#include "zerolab/wire.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "zerolab/error.h"

#include "catch.h"
#include "wire_codec.h"

using zerolab::kWireBlock;
using zerolab::wire_bytes;
using zerolab::WireDtype;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();
const WireDtype kWires[] = {WireDtype::kFloat32, WireDtype::kBFloat16, WireDtype::kInt8};

using Floats = std::vector<float>;

/// Memory that begins one float or byte after an aligned place.
at::Tensor unaligned(int64_t length, at::ScalarType dtype) {
  return at::zeros({length + 1}, dtype).narrow(0, 1, length);
}

at::Tensor encoded(WireDtype wire, const at::Tensor& values) {
  const at::Tensor bytes = at::zeros({wire_bytes(wire, values.numel())}, at::kByte);
  zerolab::wire_encode(wire, values, bytes);
  return bytes;
}

at::Tensor decoded(WireDtype wire, const at::Tensor& bytes, int64_t n) {
  const at::Tensor values = at::full({n}, 7.0F);
  zerolab::wire_decode(wire, bytes, values);
  return values;
}

Floats through(WireDtype wire, const Floats& values) {
  const at::Tensor in = at::tensor(values, at::kFloat);
  const at::Tensor out = decoded(wire, encoded(wire, in), in.numel());
  return {out.const_data_ptr<float>(), out.const_data_ptr<float>() + out.numel()};
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.numel() == b.numel() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// Numbers up to `magnitude`, small ones among them.
Floats randoms(size_t n, unsigned seed, float magnitude) {
  std::mt19937 random(seed);
  Floats numbers(n);
  for (float& x : numbers) {
    const float fraction = static_cast<float>(random() % 20001) / 10000.0F - 1;
    x = std::ldexp(fraction, -static_cast<int>(random() % 12)) * magnitude;
  }
  return numbers;
}

/// The nearest number with eight significant bits; the even one of two that are as near.
float nearest_bf16(float x) {
  const uint32_t down = std::bit_cast<uint32_t>(x) & 0xffff0000U, up = down + 0x10000;
  // In double, where what follows the largest number is not infinite.
  const auto exact = [](uint32_t bits) {
    const double sign = (bits >> 31) != 0U ? -1 : 1;
    return (bits & 0x7fffffffU) == 0x7f800000U ? sign * std::ldexp(1.0, 128)
                                               : double{std::bit_cast<float>(bits)};
  };
  const double below = std::abs(x - exact(down)), above = std::abs(x - exact(up));
  const bool odd = ((down >> 16) & 1) != 0U;
  return std::bit_cast<float>(above < below || (above == below && odd) ? up : down);
}

/// Scale of a block as documented.
float expected_scale(const Floats& x, size_t begin, size_t end) {
  float largest = 0;
  for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest == 0 ? 0 : std::max(largest / 127, std::ldexp(1.0F, -126));
}

/// The largest error of each block, in units of its scale; infinite if it is not finite.
double worst_int8_error(const Floats& x) {
  const Floats y = through(WireDtype::kInt8, x);
  double worst = 0;
  for (size_t begin = 0; begin < x.size(); begin += kWireBlock) {
    const size_t end = std::min(x.size(), begin + kWireBlock);
    const double scale = expected_scale(x, begin, end);
    for (size_t i = begin; i < end; ++i) {
      const double error = std::abs(double{y[i]} - double{x[i]});
      if (!std::isfinite(y[i]) || (scale == 0 && error > 0)) return kInfinity;
      if (error > 0) worst = std::max(worst, error / scale);
    }
  }
  return worst;
}

const double kInt8Bound = 0.5 + std::ldexp(1.0, -15);

}  // namespace

TEST_CASE("a wire format is one of three words") {
  CHECK(zerolab::parse_wire_dtype("fp32") == WireDtype::kFloat32);
  CHECK(zerolab::parse_wire_dtype("bf16") == WireDtype::kBFloat16);
  CHECK(zerolab::parse_wire_dtype("int8") == WireDtype::kInt8);
  CHECK_THROWS_AS(zerolab::parse_wire_dtype("fp16"), zerolab::ConfigError);
  CHECK_THROWS_WITH(
      zerolab::parse_wire_dtype(""),
      "wire_dtype = \"\" is not a wire format: choose \"fp32\", \"bf16\" or \"int8\"");
}

TEST_CASE("bytes on the wire: four, two, or one and a scale for each 256") {
  for (const int64_t n : {0, 1, 1000}) {
    CHECK(wire_bytes(WireDtype::kFloat32, n) == 4 * n);
    CHECK(wire_bytes(WireDtype::kBFloat16, n) == 2 * n);
  }
  const std::pair<int64_t, int64_t> expected[] = {{0, 0}, {1, 5}, {256, 260}, {257, 265}};
  for (const auto& [n, bytes] : expected) CHECK(wire_bytes(WireDtype::kInt8, n) == bytes);
}

TEST_CASE("fp32 keeps every bit") {
  const at::Tensor x = at::tensor(Floats{-0.0F, kNan, -kInfinity, kTiny, 0.1F}, at::kFloat);
  CHECK(same_bits(decoded(WireDtype::kFloat32, encoded(WireDtype::kFloat32, x), 5), x));
}

TEST_CASE("bf16 rounds every float to the nearest, ties to even") {
  Floats x;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      x.push_back(std::bit_cast<float>(high << 16 | low));
  }
  const Floats y = through(WireDtype::kBFloat16, x);
  int64_t wrong = 0;
  double worst = 0, worst_denormal = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool right = std::isnan(x[i])   ? std::isnan(y[i])
                       : std::isinf(x[i]) ? y[i] == x[i]
                                          : std::bit_cast<uint32_t>(y[i]) ==
                                                std::bit_cast<uint32_t>(nearest_bf16(x[i]));
    wrong += right ? 0 : 1;
    if (!std::isfinite(x[i]) || std::isinf(y[i])) continue;
    const double error = std::abs(double{y[i]} - double{x[i]});
    if (std::abs(x[i]) < std::numeric_limits<float>::min())
      worst_denormal = std::max(worst_denormal, error);
    else
      worst = std::max(worst, error / std::abs(double{x[i]}));
  }
  CHECK(wrong == 0);
  CHECK(worst <= std::ldexp(1.0, -8));
  CHECK(worst_denormal <= std::ldexp(1.0, -134));
}

TEST_CASE("bf16 has the bits of LibTorch's conversion") {
  const at::Tensor x = at::tensor(randoms(5000, 1, 100), at::kFloat);
  CHECK(same_bits(encoded(WireDtype::kBFloat16, x), x.to(at::kBFloat16).view(at::kByte)));
}

TEST_CASE("int8 is the values, then the scales") {
  Floats x(258, 0);
  x[0] = 127;  // so the scale is 1
  x[1] = -127;
  x[2] = 0.5;  // ties go to even
  x[3] = 1.5;
  x[4] = -2.5;
  x[5] = 0.4F;
  x[256] = -254;  // so the scale is 2
  x[257] = 5;
  const at::Tensor bytes = encoded(WireDtype::kInt8, at::tensor(x, at::kFloat));
  REQUIRE(bytes.numel() == 266);
  const auto* rounded = reinterpret_cast<const int8_t*>(bytes.const_data_ptr<uint8_t>());
  const std::vector<int> expected{127, -127, 0, 2, -2, 0};
  CHECK(std::equal(expected.begin(), expected.end(), rounded));
  CHECK(int{rounded[256]} == -127);
  CHECK(int{rounded[257]} == 2);
  float scales[2];
  std::memcpy(scales, rounded + 258, sizeof scales);
  CHECK(scales[0] == 1);
  CHECK(scales[1] == 2);
}

TEST_CASE("int8 keeps half a scale, whatever the magnitude") {
  const size_t n = GENERATE(1, 255, 256, 257, 5000);
  for (const float magnitude : {kTiny * 100, 1e-40F, 1e-36F, 1e-20F, 1e-3F, 1.0F, 3e4F, 1e38F}) {
    INFO("magnitude " << magnitude);
    CHECK(worst_int8_error(randoms(n, 2, magnitude)) <= kInt8Bound);
  }
}

TEST_CASE("int8 keeps half a scale in blocks made to break it") {
  std::vector<Floats> blocks;
  for (const float x : {kLargest, -kLargest, kTiny, -kTiny, 64 * kTiny, 190 * kTiny, 1.5e-36F})
    blocks.emplace_back(kWireBlock, x);
  Floats ties, near_ties, one_large(kWireBlock, 1e-3F), largest(kWireBlock, kLargest / 300);
  for (int i = 0; i < kWireBlock; ++i) {
    const float tie = static_cast<float>(i - 128) + 0.5F;
    ties.push_back(std::clamp(tie, -127.0F, 127.0F) * 0.37F);
    near_ties.push_back(std::nextafter(ties.back(), i % 2 == 0 ? kInfinity : -kInfinity));
  }
  one_large[100] = 1e30F;
  largest[0] = -kLargest;
  for (const Floats& block : {ties, near_ties, one_large, largest}) blocks.push_back(block);
  for (size_t i = 0; i < blocks.size(); ++i) {
    INFO("block " << i);
    CHECK(worst_int8_error(blocks[i]) <= kInt8Bound);
  }
  std::mt19937 random(3);
  Floats any;  // finite floats of any bits, with blocks as varied as can be
  while (any.size() < 200000) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(x)) any.push_back(x);
  }
  CHECK(worst_int8_error(any) <= kInt8Bound);
}

TEST_CASE("int8 sends a block of zeros as zeros") {
  const at::Tensor bytes = encoded(WireDtype::kInt8, at::full({300}, -0.0F));
  CHECK(bytes.count_nonzero().item<int64_t>() == 0);
  CHECK(same_bits(decoded(WireDtype::kInt8, bytes, 300), at::zeros({300})));
}

TEST_CASE("one value that is not finite makes its int8 block NaN, and no other") {
  for (const float bad : {kInfinity, -kInfinity, kNan, -kNan}) {
    Floats x = randoms(3 * kWireBlock, 4, 1);
    x[kWireBlock + 17] = bad;
    const Floats y = through(WireDtype::kInt8, x);
    for (size_t i = 0; i < y.size(); ++i) REQUIRE(std::isnan(y[i]) == (i / kWireBlock == 1));
  }
}

TEST_CASE("the bits depend neither on threads nor on where a slice begins") {
  const WireDtype wire = GENERATE(WireDtype::kFloat32, WireDtype::kBFloat16, WireDtype::kInt8);
  constexpr int64_t kLength = 100003;
  const at::Tensor x = at::tensor(randoms(kLength, 5, 1), at::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor bytes = encoded(wire, x), y = decoded(wire, bytes, kLength);
  for (int n : {2, 3}) {
    at::set_num_threads(n);
    CHECK(same_bits(encoded(wire, x), bytes));
    CHECK(same_bits(decoded(wire, bytes, kLength), y));
  }
  at::set_num_threads(threads);
  const at::Tensor moved_x = unaligned(kLength, at::kFloat).copy_(x);
  const at::Tensor moved_bytes = unaligned(bytes.numel(), at::kByte);
  zerolab::wire_encode(wire, moved_x, moved_bytes);
  CHECK(same_bits(moved_bytes, bytes));
  zerolab::wire_decode(wire, moved_bytes, moved_x);
  CHECK(same_bits(moved_x, y));
}

TEST_CASE("LibTorch's operators give the same bits, and the same error feedback") {
  constexpr int kSlices = 3;
  const int64_t length = GENERATE(1, 256, 1001);
  for (const WireDtype wire : kWires) {
    Floats x = randoms(static_cast<size_t>(kSlices * length), 6, 3);
    for (size_t i = 0; i < x.size() / 3; ++i) x[i] *= 1e-37F;
    if (length > 600) x[2000] = kInfinity;
    const at::Tensor values = at::tensor(x, at::kFloat);
    const at::Tensor residual = at::tensor(randoms(x.size(), 7, 1e-37F), at::kFloat),
                     kept = residual.clone();
    const at::Tensor corrected = values + residual;
    std::vector<at::Tensor> each, each_decoded;
    for (const at::Tensor& slice : corrected.split(length)) {
      each.push_back(encoded(wire, slice));
      each_decoded.push_back(decoded(wire, each.back(), length));
    }
    const at::Tensor expected = at::cat(each), y = at::cat(each_decoded);
    const at::Tensor bytes = at::zeros_like(expected), back = at::zeros_like(values);
    zerolab::wire_codec::encode_by_operators(wire, values, residual, bytes, kSlices);
    CHECK(same_bits(bytes, expected));
    CHECK(same_bits(residual, at::where(y.isfinite(), corrected - y, kept)));
    zerolab::wire_codec::decode_by_operators(wire, bytes, back, kSlices);
    CHECK(at::allclose(back, y, 0, 0, true));
  }
}

TEST_CASE("values and bytes that do not fit are refused") {
  const at::Tensor x = at::zeros({10});
  for (const WireDtype wire : kWires) {
    const at::Tensor bytes = encoded(wire, x);
    CHECK_THROWS_AS(zerolab::wire_encode(wire, at::zeros({11}), bytes), zerolab::PluginError);
    CHECK_THROWS_AS(zerolab::wire_decode(wire, bytes, at::zeros({9})), zerolab::PluginError);
    CHECK_THROWS_AS(zerolab::wire_encode(wire, x.to(at::kDouble), bytes), zerolab::PluginError);
    CHECK_THROWS_AS(zerolab::wire_decode(wire, bytes, at::zeros({5, 2})), zerolab::PluginError);
  }
}
