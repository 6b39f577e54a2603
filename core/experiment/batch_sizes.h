#pragma once
// The arithmetic between batch sizes: micro_batch_size * gradient_accumulation_steps * ranks =
// total_batch_size.

#include <cstdint>
#include <optional>
#include <string>

namespace zerolab {

/// Batch sizes as far as they are known; each at least 1.
struct BatchSizes {
  std::optional<int64_t> micro, accumulation, total;
};

/// What contradicts, and the key to point at.
struct BatchProblem {
  std::string key, message;
};

/// Fills in what is not known: of two the third; accumulation is 1 unless it follows from the other
/// two.
std::optional<BatchProblem> complete_batch_sizes(BatchSizes& sizes, int num_ranks);

}  // namespace zerolab
