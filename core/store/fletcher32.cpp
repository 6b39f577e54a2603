#include "store/fletcher32.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace zerolab {

namespace {

static_assert(std::endian::native == std::endian::little, "words lie in memory low byte first");

constexpr size_t kLanes = 16;
constexpr size_t kRowBytes = kLanes * sizeof(uint16_t);
constexpr size_t kMostRows = 256;  // a lane's sum of prefixes then stays below 2^32

using Words = uint16_t __attribute__((vector_size(16)));  // half a row
using Sums = uint32_t __attribute__((vector_size(32)));

/// Modulo 65535, but a sum that is not 0 never becomes 0, as in HDF5.
uint64_t reduce(uint64_t sum) {
  return sum == 0 ? 0 : (sum - 1) % 65535 + 1;
}

/// Both sums of `rows` rows, not reduced. Word l of row r weighs kLanes (rows - r) - l, so each
/// lane keeps its sum and the sum of its prefixes.
struct RowSums {
  uint64_t sum = 0, weighted = 0;
};

// Twice as fast with AVX2. (Sanitizers are not ready yet when the choice is made.)
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
[[gnu::target_clones("avx2", "default")]]
#endif
RowSums
sum_rows(const char* data, size_t rows) {
  Sums sum[2] = {}, prefixes[2] = {};
  for (size_t row = 0; row < rows; ++row, data += kRowBytes) {
    Words words[2];
    std::memcpy(words, data, kRowBytes);
    for (int half = 0; half < 2; ++half) {
      sum[half] += __builtin_convertvector(words[half], Sums);
      prefixes[half] += sum[half];
    }
  }
  RowSums result;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const uint64_t lane_sum = sum[lane / 8][lane % 8];
    result.sum += lane_sum;
    result.weighted += kLanes * uint64_t{prefixes[lane / 8][lane % 8]} - lane * lane_sum;
  }
  return result;
}

}  // namespace

void Fletcher32::add_word(uint32_t word) {
  sum_ = reduce(sum_ + word);
  weighted_ = reduce(weighted_ + sum_);
}

void Fletcher32::update(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  if (size > 0 && odd_) {
    add_word(first_half_ | uint32_t{static_cast<uint8_t>(*bytes)} << 8);
    odd_ = false;
    ++bytes, --size;
  }
  while (size >= kRowBytes) {
    const size_t rows = std::min(size / kRowBytes, kMostRows);
    const RowSums added = sum_rows(bytes, rows);
    weighted_ = reduce(weighted_ + rows * kLanes * sum_ + added.weighted);
    sum_ = reduce(sum_ + added.sum);
    bytes += rows * kRowBytes;
    size -= rows * kRowBytes;
  }
  for (; size >= 2; bytes += 2, size -= 2) {
    add_word(static_cast<uint8_t>(bytes[0]) | uint32_t{static_cast<uint8_t>(bytes[1])} << 8);
  }
  if (size == 1) {
    odd_ = true;
    first_half_ = static_cast<uint8_t>(*bytes);
  }
}

uint32_t Fletcher32::value() const {
  Fletcher32 whole = *this;
  if (odd_) whole.add_word(first_half_);
  // Turning a word's bytes round multiplies it by 256 modulo 65535, so the sums turn round too.
  const auto turned = [](uint64_t sum) { return static_cast<uint32_t>(reduce(sum * 256)); };
  return turned(whole.weighted_) << 16 | turned(whole.sum_);
}

uint32_t fletcher32(const void* data, size_t size) {
  Fletcher32 checksum;
  checksum.update(data, size);
  return checksum.value();
}

}  // namespace zerolab
