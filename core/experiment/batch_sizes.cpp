#include "experiment/batch_sizes.h"

namespace zerolab {
namespace {

/// a * b, or nothing if 64 bits do not hold it.
std::optional<int64_t> product(std::optional<int64_t> a, int64_t b) {
  int64_t result = 0;
  if (!a || __builtin_mul_overflow(*a, b, &result)) return std::nullopt;
  return result;
}

std::string number(std::optional<int64_t> n) {
  return n ? std::to_string(*n) : "more than 64 bits hold";
}

}  // namespace

std::optional<BatchProblem> complete_batch_sizes(BatchSizes& sizes, int num_ranks) {
  const std::string ranks = std::to_string(num_ranks) + (num_ranks == 1 ? " rank" : " ranks");
  if (!sizes.micro && !sizes.total) {
    return BatchProblem{"micro_batch_size",
                        "is missing: give it alone, or two of micro_batch_size (sequences per rank "
                        "and micro-batch), gradient_accumulation_steps and total_batch_size "
                        "(sequences per step over all ranks)"};
  }
  if (!sizes.accumulation && !(sizes.micro && sizes.total)) sizes.accumulation = 1;

  if (sizes.micro && sizes.accumulation) {
    const std::optional<int64_t> total =
        product(product(sizes.micro, *sizes.accumulation), num_ranks);
    const std::string arithmetic = "micro_batch_size " + number(sizes.micro) +
                                   " * gradient_accumulation_steps " + number(sizes.accumulation) +
                                   " * " + ranks + " = " + number(total);
    if (sizes.total && sizes.total != total) {
      return BatchProblem{"total_batch_size", "is " + number(sizes.total) + ", but " + arithmetic +
                                                  "; change one, or leave one out and it follows"};
    }
    if (!total) return BatchProblem{"micro_batch_size", "is too large: " + arithmetic};
    sizes.total = total;
    return std::nullopt;
  }
  std::optional<int64_t>& unknown = sizes.micro ? sizes.accumulation : sizes.micro;
  const int64_t known = sizes.micro ? *sizes.micro : *sizes.accumulation;
  const std::optional<int64_t> divisor = product(known, num_ranks);
  if (!divisor || *sizes.total % *divisor != 0) {
    const std::string name = sizes.micro ? "micro_batch_size " : "gradient_accumulation_steps ";
    return BatchProblem{"total_batch_size",
                        "is " + number(sizes.total) + ", which must be a multiple of " + name +
                            std::to_string(known) + " * " + ranks + " = " + number(divisor)};
  }
  unknown = *sizes.total / *divisor;
  return std::nullopt;
}

}  // namespace zerolab
