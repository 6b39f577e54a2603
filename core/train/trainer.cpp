#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ops/full.h>

#include "zerolab/error.h"
#include "zerolab/random.h"

#include "train/autocast_scope.h"
#include "train/declared_model.h"
#include "train/evaluation.h"
#include "train/gradient_diagnosis.h"
#include "train/saved_state.h"
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

constexpr const char *kSchedule = "schedule", *kData = "data", *kForward = "forward",
                     *kBackward = "backward", *kNorm = "gradient norm", *kUpdate = "update",
                     *kEvaluation = "evaluation";

/// Whose code runs in a phase, as far as one plugin is to blame.
constexpr std::pair<std::string_view, Kind> kPhaseKinds[] = {
    {kSchedule, Kind::kScheduler}, {kData, Kind::kData},     {kForward, Kind::kModel},
    {kBackward, Kind::kModel},     {kNorm, Kind::kSharding}, {kUpdate, Kind::kSharding},
    {kEvaluation, Kind::kModel}};

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
                                          experiment.batch.sequence_length)),
      guard_(experiment.guard) {
  point_.seed = experiment.seed;
  plugins.data->open({experiment.batch.sequence_length, experiment.seed});
  plugins.scheduler->open({experiment.steps});
  declare_model(*plugins.model, experiment, plugins.data->vocab_size(), parameters_);
  check_plugins();
  const ReduceEvery reduce_every =
      experiment.batch.reduce_every == "step" ? ReduceEvery::kStep : ReduceEvery::kMicroBatch;
  plugins.sharding->attach(
      {parameters_, world, *plugins.optimizer, policy_, experiment.seed, reduce_every});
  check_parameter_dtype();
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

/// What an open data and a declared model have to be like.
void Trainer::check_plugins() const {
  for (const Split split : {Split::kTrain, Split::kValidation}) {
    if (plugins_.data->size(split) >= 1) continue;
    throw PluginError("data '" + experiment_.plugin(Kind::kData).name +
                      "' opened without a sample to " +
                      (split == Split::kTrain ? "train on" : "validate with"));
  }
  if (parameters_.total_numel(true) == 0) {
    throw PluginError("model '" + experiment_.plugin(Kind::kModel).name +
                      "' has no parameter that is trained");
  }
  check_state_names(*plugins_.optimizer, experiment_.plugin(Kind::kOptimizer).name);
}

/// A strategy that knows float32 alone must not run in another precision without a word.
void Trainer::check_parameter_dtype() const {
  const at::ScalarType dtype = parameters_.tensor(0).scalar_type();
  if (dtype == policy_.parameter_dtype) return;
  throw PluginError("sharding '" + experiment_.plugin(Kind::kSharding).name +
                    "' made parameters of " + c10::toString(dtype) + ", and precision '" +
                    experiment_.plugin(Kind::kPrecision).name + "' asks for " +
                    c10::toString(policy_.parameter_dtype) + "; choose another of one of them.");
}

void Trainer::set_pulse(std::function<void(int64_t, const char*)> pulse) {
  pulse_ = std::move(pulse);
}

void Trainer::set_before_update(std::function<void()> before_update) {
  before_update_ = std::move(before_update);
}

void Trainer::enter(const char* phase) {
  phase_ = phase;
  if (pulse_) pulse_(current_step_, phase);
}

std::string Trainer::where() const {
  std::string text = "step " + std::to_string(current_step_) + ", " + phase_;
  for (const auto& [phase, kind] : kPhaseKinds) {
    if (phase == std::string_view(phase_)) {
      text += ", " + std::string(kind_name(kind)) + " '" + experiment_.plugin(kind).name + "'";
    }
  }
  return text;
}

void Trainer::go_on(TrainingPoint point) {
  current_step_ = point.step;
  plugins_.precision->restore(point.precision);
  guard_.restore(point.recent_losses, point.skips_in_a_row);
  point_ = std::move(point);
}

TrainingPoint Trainer::point() const {
  TrainingPoint point = point_;
  point.precision = plugins_.precision->state();
  point.recent_losses = guard_.recent_losses();
  point.skips_in_a_row = guard_.skips_in_a_row();
  return point;
}

StepRecord Trainer::step(bool stop, double save) {
  const auto started = Clock::now();
  bytes_->begin_step();
  StepRecord record;
  record.step = current_step_ = point_.step + 1;
  enter(kSchedule);
  record.lr = plugins_.scheduler->lr(point_.step);
  if (!(record.lr >= 0) || std::isinf(record.lr)) {
    throw PluginError("scheduler '" + experiment_.plugin(Kind::kScheduler).name + "' gave lr " +
                      std::to_string(record.lr) + "; it must be finite and not negative");
  }
  record.loss_scale = plugins_.precision->loss_scale();
  losses_.clear();
  tokens_.clear();
  for (int64_t micro = 0; micro < experiment_.batch.gradient_accumulation_steps; ++micro) {
    micro_batch(micro, record.loss_scale);
  }
  enter(kNorm);
  const StepSums sums = agree_on_sums(stop, save);
  record.loss = sums.loss / sums.tokens;
  const GradientNorm norm = plugins_.sharding->gradient_norm();
  // Token weighting and loss scale are undone once, here, after the sum.
  const double multiplier = nominal_tokens_ / sums.tokens / record.loss_scale;
  record.grad_norm = norm.norm * multiplier;
  enter(kUpdate);
  const GuardVerdict verdict = guard_.judge(record.loss, norm.finite, record.loss_scale != 1);
  update(verdict, multiplier, record);
  plugins_.precision->observe(norm.finite);
  bytes_->end_step(record);
  record.trouble = trouble(verdict, sums, record.loss_scale);
  action_ = verdict.action;
  point_.val_loss = std::numeric_limits<double>::quiet_NaN();
  point_.tokens += static_cast<int64_t>(sums.tokens);
  point_.next_sample += experiment_.batch.total_batch_size;
  ++point_.step;
  record.tokens = point_.tokens;
  // Only rank 0's is recorded.
  if (world_.rank() == 0) record.peak_memory_bytes = peak_memory_bytes();
  record.peak_tensor_bytes = peak_tensor_bytes();
  record.step_seconds = seconds_since(started);
  record.tokens_per_sec = sums.tokens / record.step_seconds;
  return record;
}

void Trainer::update(const GuardVerdict& verdict, double multiplier, StepRecord& record) {
  if (before_update_) before_update_();
  if (verdict.action != GuardAction::kNone) {
    plugins_.sharding->discard();
    record.skipped = true;
    ++point_.skipped_steps;
    return;
  }
  if (experiment_.gradient_clipping > 0) {
    multiplier *= std::min(1.0, experiment_.gradient_clipping / (record.grad_norm + 1e-6));
  }
  plugins_.sharding->update({record.lr, ++point_.applied_updates, multiplier});
  if (!experiment_.check_replicas) return;
  compare_resident(parameters_, world_, "after step " + std::to_string(current_step_),
                   "the sharding strategy has to publish what it updates");
}

void Trainer::micro_batch(int64_t micro, double loss_scale) {
  enter(kData);
  const Batch& batch = batcher_->train(point_.next_sample, micro);
  plugins_.sharding->begin_micro_batch(micro + 1 == experiment_.batch.gradient_accumulation_steps);
  units_.begin(true,
               mix_key({experiment_.seed, name_key("dropout"), static_cast<uint64_t>(point_.step),
                        static_cast<uint64_t>(batcher_->global_micro_batch(micro))}));
  enter(kForward);
  at::Tensor loss;
  {
    const AutocastScope autocast(policy_.autocast_dtype);
    loss = plugins_.model->loss(batch, units_);
  }
  enter(kBackward);
  backward_seed_.fill_(loss_scale / nominal_tokens_);
  loss.backward(backward_seed_);
  units_.end();
  plugins_.sharding->end_micro_batch();
  losses_.push_back(loss.item<double>());
  tokens_.push_back(static_cast<double>(batch.num_targets));
}

/// Loss and targets over all ranks, added in the order of global micro-batches; and everyone's
/// votes.
Trainer::StepSums Trainer::agree_on_sums(bool stop, double save) {
  std::vector<double> mine = losses_;
  mine.insert(mine.end(), tokens_.begin(), tokens_.end());
  mine.insert(mine.end(), {stop ? 1.0 : 0.0, save});
  const auto all = world_.gather_control(mine);
  const size_t micros = losses_.size();
  std::vector<double> losses, tokens;
  StepSums sums;
  for (size_t micro = 0; micro < micros; ++micro) {
    for (size_t rank = 0; rank < static_cast<size_t>(world_.size()); ++rank) {
      losses.push_back(all[rank * mine.size() + micro]);
      tokens.push_back(all[rank * mine.size() + micros + micro]);
      if (std::isfinite(losses.back()) || !sums.not_finite.empty()) continue;
      sums.not_finite = "rank " + std::to_string(rank) + " in micro-batch " + std::to_string(micro);
    }
  }
  votes_ = {};
  for (size_t end = mine.size(); end <= all.size(); end += mine.size()) {
    votes_.stop = votes_.stop || all[end - 2] != 0;
    votes_.save.push_back(all[end - 1]);
  }
  sums.loss = tree_sum(losses);
  sums.tokens = tree_sum(tokens);
  if (sums.tokens == 0) throw Error("the data gave no target that counts in this step");
  return sums;
}

/// [collective] What is wrong with the step, and where it began. Looking for the place runs the
/// step's micro-batches once more, which gives the same gradients: it is done once for a row of
/// skipped steps.
std::string Trainer::trouble(const GuardVerdict& verdict, const StepSums& sums, double loss_scale) {
  if (verdict.reason.empty()) return {};
  std::string text = verdict.reason;
  if (!sums.not_finite.empty()) text += " on " + sums.not_finite;
  const bool first = guard_.skips_in_a_row() == 1 || verdict.action != GuardAction::kSkip;
  if (!verdict.not_finite || !first) return text;
  enter("diagnosis");
  const std::string place =
      find_bad_gradient(parameters_, world_, experiment_.batch.gradient_accumulation_steps,
                        [&](int64_t micro) { micro_batch(micro, loss_scale); });
  plugins_.sharding->discard();
  return place.empty() ? text : text + "; " + place;
}

void Trainer::synchronize() {
  if (before_update_) before_update_();
  plugins_.sharding->synchronize();
}

double Trainer::validate() {
  enter(kEvaluation);
  synchronize();
  point_.val_loss =
      evaluate({*plugins_.model, *plugins_.data, units_, *batcher_, world_, policy_,
                [this] { enter(kEvaluation); }},
               experiment_.evaluation.num_samples, experiment_.batch.micro_batch_size);
  return point_.val_loss;
}

}  // namespace zerolab
