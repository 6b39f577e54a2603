#include "train/sample_order.h"

#include <bit>

#include "zerolab/random.h"

namespace zerolab {

int64_t permute(int64_t index, int64_t size, uint64_t key) {
  if (size <= 1) return 0;
  // The smallest even number of bits that covers the domain: at most four walks on average.
  const int bits = std::bit_width(static_cast<uint64_t>(size - 1));
  const int half = (bits + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto x = static_cast<uint64_t>(index);
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (mix_key({key, round, right}) & mask);
      left = right;
      right = next;
    }
    x = (left << half) | right;
  } while (x >= static_cast<uint64_t>(size));
  return static_cast<int64_t>(x);
}

int64_t SampleOrder::index(int64_t number) const {
  const int64_t epoch = number / epoch_length_;
  return permute(number % epoch_length_, size_, mix_key({seed_, static_cast<uint64_t>(epoch)}));
}

}  // namespace zerolab
