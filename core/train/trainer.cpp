#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>

#include <ATen/ops/full.h>

#include "zerolab/error.h"
#include "zerolab/random.h"

#include "train/autocast_scope.h"
#include "train/evaluation.h"
#include "train/tensor_memory.h"

namespace zerolab {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// High-water mark of this program alone: getrusage's also holds that of the process it was started
/// by.
int64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

/// States are found again by their names.
void check_state_names(const Optimizer& optimizer, const std::string& name) {
  std::vector<std::string> names = optimizer.state_names();
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return;
  throw PluginError("optimizer '" + name + "' names two of its states '" + *twice + "'");
}

}  // namespace

std::string plain_sentence(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  const std::string memory = "you tried to allocate ";
  const size_t at = text.find(memory);
  if (at == std::string::npos) return text;
  const size_t number = at + memory.size();
  return "out of memory: " + text.substr(number, text.find(' ', number) - number) +
         " bytes could not be allocated; use a smaller model or a smaller micro_batch_size.";
}

Trainer::Trainer(const Experiment& experiment, TrainingPlugins& plugins, Communicator& world)
    : experiment_(experiment),
      plugins_(plugins),
      world_(world),
      policy_(plugins.precision->policy()),
      nominal_tokens_(static_cast<double>(experiment.batch.total_batch_size *
                                          experiment.batch.sequence_length)) {
  plugins.data->open({experiment.batch.sequence_length, experiment.seed});
  for (const Split split : {Split::kTrain, Split::kValidation}) {
    if (plugins.data->size(split) >= 1) continue;
    throw PluginError("data '" + experiment.plugin(Kind::kData).name +
                      "' opened without a sample to " +
                      (split == Split::kTrain ? "train on" : "validate with"));
  }
  plugins.scheduler->open({experiment.steps});
  plugins.model->declare(parameters_,
                         {plugins.data->vocab_size(), experiment.batch.sequence_length});
  if (policy_.parameter_dtype != at::kFloat || policy_.gradient_dtype != at::kFloat) {
    throw PluginError("precision '" + experiment.plugin(Kind::kPrecision).name +
                      "' keeps parameters or gradients in another dtype than float32, which this "
                      "version does not support");
  }
  if (parameters_.total_numel(true) == 0) {
    throw PluginError("model '" + experiment.plugin(Kind::kModel).name +
                      "' has no parameter that is trained");
  }
  const ReduceEvery reduce_every =
      experiment.batch.reduce_every == "step" ? ReduceEvery::kStep : ReduceEvery::kMicroBatch;
  check_state_names(*plugins.optimizer, experiment.plugin(Kind::kOptimizer).name);
  plugins.sharding->attach(
      {parameters_, world, *plugins.optimizer, policy_, experiment.seed, reduce_every});
  bytes_ = std::make_unique<ByteRecord>(
      world, *plugins.sharding,
      FootprintRequest{parameters_, world.size(), policy_,
                       static_cast<int64_t>(plugins.optimizer->state_names().size()),
                       experiment.batch.gradient_accumulation_steps, reduce_every},
      experiment.steps / 10);
  units_.set_listener(plugins.sharding.get());
  units_.set_activation_checkpointing(experiment.memory.activation_checkpointing);
  batcher_ = std::make_unique<Batcher>(*plugins.data, experiment.batch, experiment.seed,
                                       world.rank(), world.size());
  backward_seed_ = at::full({}, 1, at::TensorOptions().dtype(at::kFloat));
}

Trainer::~Trainer() = default;

RunResult Trainer::run(TrainingObserver& observer) {
  const auto started = Clock::now();
  std::vector<double> rates;
  StepRecord record;
  int64_t step_index = 0;
  try {
    for (; step_index < experiment_.steps; ++step_index) {
      record = step(step_index);
      rates.push_back(record.tokens_per_sec);
      if (due(experiment_.evaluation.every, record.step)) {
        record.val_loss = validate();
        record.evaluated = true;
      }
      phase_ = "recording";
      observer.on_step(record);
    }
  } catch (Error& error) {
    error.in(where(step_index));
    throw;
  } catch (const c10::Error& error) {
    throw Error(where(step_index) + ": " + plain_sentence(error));
  } catch (const std::exception& error) {
    throw Error(where(step_index) + ": " + error.what());
  }
  return result(record, std::move(rates), seconds_since(started));
}

std::string Trainer::where(int64_t step) const {
  return "step " + std::to_string(step + 1) + ", " + phase_;
}

StepRecord Trainer::step(int64_t step) {
  const auto started = Clock::now();
  bytes_->begin_step();
  StepRecord record;
  record.step = step + 1;
  phase_ = "schedule";
  record.lr = plugins_.scheduler->lr(step);
  if (!(record.lr >= 0) || std::isinf(record.lr)) {
    throw PluginError("scheduler '" + experiment_.plugin(Kind::kScheduler).name + "' gave lr " +
                      std::to_string(record.lr) + "; it must be finite and not negative");
  }
  record.loss_scale = plugins_.precision->loss_scale();
  losses_.clear();
  tokens_.clear();
  for (int64_t micro = 0; micro < experiment_.batch.gradient_accumulation_steps; ++micro) {
    micro_batch(step, micro, record.loss_scale);
  }
  phase_ = "gradient norm";
  const StepSums sums = agree_on_sums();
  record.loss = sums.loss / sums.tokens;
  trained_tokens_ += static_cast<int64_t>(sums.tokens);
  record.tokens = trained_tokens_;
  const GradientNorm norm = plugins_.sharding->gradient_norm();
  // Token weighting and loss scale are undone once, here, after the sum.
  double multiplier = nominal_tokens_ / sums.tokens / record.loss_scale;
  record.grad_norm = norm.norm * multiplier;
  phase_ = "update";
  if (norm.finite) {
    if (experiment_.gradient_clipping > 0) {
      multiplier *= std::min(1.0, experiment_.gradient_clipping / (record.grad_norm + 1e-6));
    }
    plugins_.sharding->update({record.lr, ++applied_updates_, multiplier});
  } else {
    plugins_.sharding->discard();
    record.skipped = true;
    ++skipped_steps_;
  }
  plugins_.precision->observe(norm.finite);
  bytes_->end_step(record);
  // Only rank 0's is recorded.
  if (world_.rank() == 0) record.peak_memory_bytes = peak_memory_bytes();
  record.peak_tensor_bytes = peak_tensor_bytes();
  record.step_seconds = seconds_since(started);
  record.tokens_per_sec = sums.tokens / record.step_seconds;
  return record;
}

void Trainer::micro_batch(int64_t step, int64_t micro, double loss_scale) {
  phase_ = "data";
  const Batch& batch = batcher_->train(step, micro);
  plugins_.sharding->begin_micro_batch(micro + 1 == experiment_.batch.gradient_accumulation_steps);
  units_.begin(true, mix_key({experiment_.seed, name_key("dropout"), static_cast<uint64_t>(step),
                              static_cast<uint64_t>(batcher_->global_micro_batch(micro))}));
  phase_ = "forward";
  at::Tensor loss;
  {
    const AutocastScope autocast(policy_.autocast_dtype);
    loss = plugins_.model->loss(batch, units_);
  }
  phase_ = "backward";
  backward_seed_.fill_(loss_scale / nominal_tokens_);
  loss.backward(backward_seed_);
  units_.end();
  plugins_.sharding->end_micro_batch();
  losses_.push_back(loss.item<double>());
  tokens_.push_back(static_cast<double>(batch.num_targets));
}

/// Loss and targets over all ranks, added in the order of global micro-batches.
Trainer::StepSums Trainer::agree_on_sums() {
  std::vector<double> mine = losses_;
  mine.insert(mine.end(), tokens_.begin(), tokens_.end());
  const auto all = world_.gather_control(mine);
  const size_t micros = losses_.size();
  std::vector<double> losses, tokens;
  for (size_t micro = 0; micro < micros; ++micro) {
    for (size_t rank = 0; rank < static_cast<size_t>(world_.size()); ++rank) {
      losses.push_back(all[rank * 2 * micros + micro]);
      tokens.push_back(all[rank * 2 * micros + micros + micro]);
    }
  }
  const StepSums sums{tree_sum(losses), tree_sum(tokens)};
  if (sums.tokens == 0) throw Error("the data gave no target that counts in this step");
  return sums;
}

double Trainer::validate() {
  phase_ = "evaluation";
  plugins_.sharding->synchronize();
  return evaluate({*plugins_.model, *plugins_.data, units_, *batcher_, world_, policy_},
                  experiment_.evaluation.num_samples, experiment_.batch.micro_batch_size);
}

bool Trainer::due(int64_t every, int64_t finished) const {
  return finished == experiment_.steps || (every > 0 && finished % every == 0);
}

RunResult Trainer::result(const StepRecord& last, std::vector<double> rates, double seconds) const {
  RunResult result;
  result.last = last;
  result.val_loss = last.val_loss;
  result.seconds = seconds;
  result.parameters = parameters_.total_numel();
  result.skipped_steps = skipped_steps_;
  bytes_->finish(result);
  // The first steps warm caches up.
  rates.erase(rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 10));
  if (!rates.empty()) {
    const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
    std::nth_element(rates.begin(), middle, rates.end());
    result.tokens_per_sec = *middle;
  }
  return result;
}

}  // namespace zerolab
