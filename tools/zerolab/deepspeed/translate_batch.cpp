#include "zerolab/error.h"

#include "translation.h"

namespace zerolab {
namespace {

const std::string kTotal = "train_batch_size";
const std::string kMicro = "train_micro_batch_size_per_gpu";
const std::string kAccumulation = "gradient_accumulation_steps";

constexpr int64_t kLargestPart = 1 << 24, kLargestTotal = 1 << 30;  // what [batch] allows

/// DeepSpeed wants total = micro * accumulation * GPUs.
void check_divides(const DeepSpeedConfig& config, int64_t total, int64_t divisor,
                   const std::string& product) {
  if (total % divisor == 0) return;
  throw ConfigError(config.source().where(kTotal) + ": is " + std::to_string(total) +
                    ", but must be " + product +
                    " times a number of GPUs; DeepSpeed refuses it "
                    "on any number of them: change one.");
}

}  // namespace

void translate_batch(DeepSpeedConfig& config, ExperimentDraft& draft) {
  const auto total = config.count(kTotal, "batch.total_batch_size", 1, kLargestTotal);
  const auto micro = config.count(kMicro, "batch.micro_batch_size", 1, kLargestPart);
  const auto accumulation =
      config.count(kAccumulation, "batch.gradient_accumulation_steps", 1, kLargestPart);
  const std::string micro_text = kMicro + " " + std::to_string(micro.value_or(0));
  const std::string accumulation_text =
      kAccumulation + " " + std::to_string(accumulation.value_or(0));

  draft.set("batch", "sequence_length", int64_t{64}, "chosen here");
  if (total) {
    draft.set("batch", "total_batch_size", *total, "from " + kTotal);
    config.honoured(kTotal, "batch.total_batch_size");
  }
  if (micro) {
    draft.set("batch", "micro_batch_size", *micro, "from " + kMicro);
    config.honoured(kMicro, "batch.micro_batch_size");
  } else if (!total) {
    draft.set("batch", "micro_batch_size", int64_t{1}, "chosen here");
  }
  if (total && micro && accumulation) {
    const int64_t product = *micro * *accumulation;
    check_divides(config, *total, product, micro_text + " * " + accumulation_text);
    // All three hold on one number of ranks alone; the total is what a run on others should keep.
    config.honoured(kAccumulation, "batch.gradient_accumulation_steps",
                    "follows from the other two, so that any --ranks keeps the total batch: " +
                        std::to_string(*accumulation) + " at --ranks " +
                        std::to_string(*total / product));
    return;
  }
  if (total && micro) return check_divides(config, *total, *micro, micro_text);
  if (total && accumulation) check_divides(config, *total, *accumulation, accumulation_text);
  if (accumulation) config.honoured(kAccumulation, "batch.gradient_accumulation_steps");
  draft.set("batch", "gradient_accumulation_steps", accumulation.value_or(1),
            accumulation ? "from " + kAccumulation : "DeepSpeed's default");
}

}  // namespace zerolab
