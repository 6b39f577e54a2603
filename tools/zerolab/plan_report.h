#pragma once
// What `zerolab plan` prints: a table for each number of ranks, or one JSON object.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace zerolab {

/// All strategies on one number of ranks.
struct PlanTable {
  int num_ranks = 1;
  int fitted_ranks = 1;  ///< the number of ranks that the batch sizes per rank come from
  int64_t micro_batch_size = 1, micro_batches = 1;
  int64_t activation_bytes = 0;
  std::vector<PlanRow> rows;
};

struct Plan {
  std::string experiment, plugins;  ///< its name; the plugins that figures depend on
  int64_t parameters = 0, trainable = 0;
  PrecisionPolicy precision;
  int64_t num_states = 0;
  bool activation_checkpointing = false;
  std::string reduce_every;
  std::optional<int64_t> memory, bandwidth;  ///< bytes; bytes a second
  std::vector<PlanTable> tables;
};

/// "fp32", "bf16", "fp16", or LibTorch's word.
std::string dtype_word(at::ScalarType dtype);
/// The dtype that the model computes in.
at::ScalarType compute_dtype(const PrecisionPolicy& precision);

std::string plan_text(const Plan& plan);
std::string plan_json(const Plan& plan);

}  // namespace zerolab
