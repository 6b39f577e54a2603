#include "train/data_digest.h"

#include <algorithm>
#include <span>
#include <vector>

#include "store/xxh128.h"

namespace zerolab {
namespace {

/// Enough to notice a text that is another; few enough to cost nothing.
constexpr int64_t kSamplesOfSplit = 64;

}  // namespace

std::string data_digest(const Data& data, int64_t sequence_length) {
  const auto length = static_cast<size_t>(sequence_length);
  std::vector<int64_t> numbers{data.vocab_size()};
  for (const Split split : {Split::kTrain, Split::kValidation}) {
    const int64_t size = data.size(split), count = std::min(size, kSamplesOfSplit);
    numbers.push_back(size);
    for (int64_t i = 0; i < count; ++i) {
      // The first and the last are among them.
      const int64_t index = i * (size - 1) / std::max<int64_t>(1, count - 1);
      const size_t start = numbers.size();
      numbers.resize(start + 2 * length);
      const std::span<int64_t> sample(numbers.data() + start, 2 * length);
      data.sample(split, index, sample.first(length), sample.last(length));
    }
  }
  return xxh128({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)});
}

}  // namespace zerolab
