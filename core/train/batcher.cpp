#include "train/batcher.h"

#include <algorithm>
#include <span>
#include <string>

#include <ATen/ops/empty.h>

#include "zerolab/error.h"
#include "zerolab/random.h"

namespace zerolab {
namespace {

int64_t count_targets(const at::Tensor& targets_BT) {
  const int64_t* t = targets_BT.const_data_ptr<int64_t>();
  return targets_BT.numel() - std::count(t, t + targets_BT.numel(), kIgnoredTarget);
}

/// Samples of an epoch. Errors: ConfigError where none would be left.
int64_t epoch_length(int64_t size, const BatchConfig& config) {
  if (!config.drop_last) return size;
  const int64_t length = size / config.total_batch_size * config.total_batch_size;
  if (length > 0) return length;
  throw ConfigError("key 'batch.drop_last': drops all of the " + std::to_string(size) +
                    " training samples, because a step takes " +
                    std::to_string(config.total_batch_size) +
                    " (batch.total_batch_size); take fewer, or set it to false.");
}

}  // namespace

Batcher::Batcher(const Data& data, const BatchConfig& config, uint64_t seed, int rank,
                 int num_ranks)
    : data_(data),
      config_(config),
      order_(data.size(Split::kTrain), mix_key({seed, name_key("sample order")}),
             epoch_length(data.size(Split::kTrain), config)),
      rank_(rank),
      num_ranks_(num_ranks) {
  const auto options = at::TensorOptions().dtype(at::kLong);
  batch_.tokens = at::empty({config.micro_batch_size, config.sequence_length}, options);
  batch_.targets = at::empty({config.micro_batch_size, config.sequence_length}, options);
}

void Batcher::fill(Split split, int64_t row, int64_t index) {
  const auto length = static_cast<size_t>(config_.sequence_length);
  const int64_t start = row * config_.sequence_length;
  data_.sample(split, index, std::span(batch_.tokens.mutable_data_ptr<int64_t>() + start, length),
               std::span(batch_.targets.mutable_data_ptr<int64_t>() + start, length));
}

const Batch& Batcher::train(int64_t first_sample, int64_t micro) {
  const int64_t size = config_.micro_batch_size;
  const int64_t first = first_sample + global_micro_batch(micro) * size;
  for (int64_t i = 0; i < size; ++i) fill(Split::kTrain, i, order_.index(first + i));
  batch_.num_targets = count_targets(batch_.targets);
  return batch_;
}

Batch Batcher::validation(int64_t first, int64_t count) {
  for (int64_t i = 0; i < count; ++i) fill(Split::kValidation, i, first + i);
  Batch batch{batch_.tokens.narrow(0, 0, count), batch_.targets.narrow(0, 0, count), 0};
  batch.num_targets = count_targets(batch.targets);
  return batch;
}

}  // namespace zerolab
