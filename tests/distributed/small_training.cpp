#include "small_training.h"

#include <limits>
#include <mutex>

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include "awkward_model.h"
#include "catch.h"
#include "distributed/world.h"
#include "memory_ranks.h"
#include "train/trainer.h"

namespace {

using zerolab::Kind;

/// Makes the loss of one rank infinite from a step on, through the gradients it sends.
class PoisonedModel : public AwkwardModel {
 public:
  PoisonedModel(bool active, int64_t from_call) : active_(active), from_call_(from_call) {}
  at::Tensor loss(const zerolab::Batch& batch, zerolab::Units& units) override {
    const at::Tensor sum = AwkwardModel::loss(batch, units);
    return active_ && calls_++ >= from_call_ ? sum.mul(std::numeric_limits<double>::infinity())
                                             : sum;
  }

 private:
  bool active_;
  int64_t from_call_, calls_ = 0;
};

/// Units free their parameters: what the model computes with is not there between steps.
bool shards_parameters(const Setting& s) {
  return s.sharding == "zero3" || s.sharding == "hsdp";
}

double parameter_sum(zerolab::Trainer& trainer) {
  double sum = 0;
  for (size_t i = 0; i < trainer.parameters().size(); ++i) {
    sum += trainer.parameters().tensor(i).detach().to(at::kDouble).sum().item<double>();
  }
  return sum;
}

}  // namespace

zerolab::Experiment experiment_of(const Setting& s) {
  zerolab::Experiment e;
  e.name = "test";
  e.steps = s.steps;
  e.gradient_clipping = s.clipping;
  e.batch.sequence_length = 9;
  e.batch.micro_batch_size = s.micro_batch_size;
  e.batch.gradient_accumulation_steps = s.accumulation;
  e.batch.total_batch_size = s.micro_batch_size * s.accumulation * s.ranks;
  e.batch.reduce_every = s.reduce_every;
  e.evaluation.num_samples = s.num_samples;
  const auto choose = [&](Kind kind, const std::string& name) {
    zerolab::PluginChoice& choice = e.plugins[static_cast<size_t>(kind)];
    choice.name = name;
    choice.options = host().entry(kind, name).schema().defaults();
    return &choice.options;
  };
  (*choose(Kind::kOptimizer, "adamw"))["weight_decay"] = 0.1;
  (*choose(Kind::kScheduler, "constant"))["lr"] = 0.01;
  auto& precision = *choose(Kind::kPrecision, s.precision);
  for (const auto& [name, value] : s.precision_options) precision[name] = value;
  e.memory.activation_checkpointing = s.checkpointing;
  auto& sharding = *choose(Kind::kSharding, s.sharding);
  sharding["reduce_bucket_size"] = s.bucket;
  sharding["overlap_comm"] = s.overlap;
  for (const auto& [name, value] : s.options) sharding[name] = value;
  return e;
}

void collect_state(const std::vector<zerolab::StatePiece>& pieces, Tensors& whole) {
  for (const zerolab::StatePiece& piece : pieces) {
    at::Tensor& tensor = whole[piece.parameter + "/" + piece.state];
    int64_t numel = 1;
    for (int64_t d : piece.shape) numel *= d;
    if (!tensor.defined()) tensor = at::full({numel}, std::nan(""), piece.data.options());
    tensor.narrow(0, piece.offset, piece.length).copy_(piece.data);
  }
}

Outcome run(const Setting& s) {
  at::set_num_threads(1);
  const zerolab::Experiment experiment = experiment_of(s);
  std::vector<zerolab::TrainingPlugins> plugins(static_cast<size_t>(s.ranks));
  for (int r = 0; r < s.ranks; ++r) {
    zerolab::TrainingPlugins& p = plugins[static_cast<size_t>(r)];
    p.data = std::make_unique<CountingData>();
    const bool poisoned = s.poison_from >= 0 && r == 0;
    if (s.model != nullptr) {
      p.model = s.model(r);
    } else {
      p.model = std::make_unique<PoisonedModel>(poisoned, static_cast<int64_t>(s.poison_from));
    }
    p.optimizer = host().create<zerolab::Optimizer>(experiment);
    p.scheduler = host().create<zerolab::Scheduler>(experiment);
    p.precision = host().create<zerolab::Precision>(experiment);
    p.sharding = host().create<zerolab::Sharding>(experiment);
  }
  Outcome outcome;
  outcome.held.resize(static_cast<size_t>(s.ranks));
  std::mutex mutex;
  const auto on_ranks = s.over_gloo ? zerolab::run_on_threads : run_in_memory;
  on_ranks(s.ranks, [&](zerolab::Communicator& world) {
    zerolab::Trainer trainer(experiment, plugins[static_cast<size_t>(world.rank())], world);
    for (int64_t step = 0; step < s.steps; ++step) {
      world.reset_counters();
      const zerolab::StepRecord record = trainer.step();
      if (world.rank() != s.ranks - 1) continue;
      for (size_t kind = 0; kind < zerolab::kNumCollectiveKinds; ++kind) {
        const auto& counters = world.counters(static_cast<zerolab::CollectiveKind>(kind));
        outcome.moved[kind] = {counters.calls, counters.bytes};
      }
      outcome.losses.push_back(record.loss);
      outcome.norms.push_back(record.grad_norm);
      outcome.skipped.push_back(record.skipped);
      outcome.bytes_moved = record.bytes_moved;
    }
    const double val_loss = trainer.validate();
    const std::lock_guard lock(mutex);
    outcome.val_losses.push_back(val_loss);
    outcome.held[static_cast<size_t>(world.rank())] = trainer.sharding().held_bytes();
    collect_state(trainer.sharding().state(), outcome.state);
    if (!shards_parameters(s)) outcome.parameter_sums.push_back(parameter_sum(trainer));
    if (world.rank() != s.ranks - 1) return;
    const auto predicted = trainer.sharding().footprint(
        {trainer.parameters(), s.ranks, plugins[0].precision->policy(), 2, s.accumulation,
         s.reduce_every == "step" ? zerolab::ReduceEvery::kStep
                                  : zerolab::ReduceEvery::kMicroBatch});
    if (predicted) outcome.predicted = *predicted;
    if (shards_parameters(s)) return;
    for (size_t i = 0; i < trainer.parameters().size(); ++i) {
      outcome.parameters[trainer.parameters().info(i).name] =
          trainer.parameters().tensor(i).detach().clone();
    }
  });
  return outcome;
}

void check_same_tensors(const std::map<std::string, at::Tensor>& a,
                        const std::map<std::string, at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : a) {
    INFO(name);
    REQUIRE(b.count(name) == 1);
    CHECK(at::equal(tensor, b.at(name)));
    CHECK(tensor.isfinite().all().item<bool>());
  }
}

void check_bit_identical(const Outcome& a, const Outcome& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.norms == b.norms);
  CHECK(a.val_losses == b.val_losses);
  if (!b.parameters.empty()) check_same_tensors(a.parameters, b.parameters);
  check_same_tensors(a.state, b.state);
}

void check_prediction(const Outcome& outcome) {
  const zerolab::HeldBytes& predicted = outcome.predicted.held;
  for (const zerolab::HeldBytes& held : outcome.held) {
    CHECK(held.parameters == predicted.parameters);
    CHECK(held.gradients == predicted.gradients);
    CHECK(held.optimizer == predicted.optimizer);
    CHECK(held.buckets == predicted.buckets);
    CHECK(held.gathered == predicted.gathered);
  }
  for (size_t kind = 0; kind < zerolab::kNumCollectiveKinds; ++kind) {
    const auto which = static_cast<zerolab::CollectiveKind>(kind);
    if (which == zerolab::CollectiveKind::kControl) continue;
    INFO(zerolab::collective_name(which));
    CHECK(outcome.moved[kind].calls == outcome.predicted.moved[kind].calls);
    CHECK(outcome.moved[kind].bytes == outcome.predicted.moved[kind].bytes);
  }
}

std::string title(const Setting& s) {
  return s.sharding + (s.checkpointing ? ", checkpointing" : "") +
         (s.overlap ? "" : ", no overlap") + (s.clipping > 0 ? "" : ", no clipping") + ", " +
         std::to_string(s.ranks) + " ranks, accumulation " + std::to_string(s.accumulation) + ", " +
         s.precision + (s.precision_options.empty() ? "" : " with options") + ", reduce every " +
         s.reduce_every;
}
