// Promise 1: at the same number of ranks every sharding strategy gives the same bits: losses,
// norms, parameters, states.

#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include "awkward_model.h"
#include "catch.h"
#include "distributed/world.h"
#include "host/plugin_host.h"
#include "train/trainer.h"

namespace {

using zerolab::Kind;

struct Setting {
  std::string sharding = "ddp", precision = "fp32", reduce_every = "micro_batch";
  int ranks = 1;
  int64_t accumulation = 1;
  double clipping = 0.5;
  int64_t bucket = 128;
  int64_t micro_batch_size = 2;
  int64_t steps = 4;
  int64_t num_samples = 0;  ///< of the validation split; 0: all
  double poison_from = -1;  ///< step from which rank 0's loss is not finite
};

zerolab::PluginHost& host() {
  static zerolab::PluginHost host = [] {
    zerolab::PluginSearch search;
    search.from_command_line = {ZEROLAB_TEST_PLUGIN_DIR};
    return zerolab::PluginHost(search);
  }();
  return host;
}

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
  choose(Kind::kPrecision, s.precision);
  (*choose(Kind::kSharding, s.sharding))["reduce_bucket_size"] = s.bucket;
  return e;
}

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

struct Outcome {
  std::vector<double> losses, norms, val_losses;
  std::vector<bool> skipped;
  int64_t bytes_moved = 0;
  std::map<std::string, at::Tensor> state;  ///< "parameter/state" assembled from all ranks' pieces
  std::map<std::string, at::Tensor> parameters;  ///< what the model of the last rank computes with
  std::vector<zerolab::HeldBytes> held;          ///< by rank
};

void collect_state(zerolab::Trainer& trainer, Outcome& outcome) {
  for (const zerolab::StatePiece& piece : trainer.sharding().state()) {
    at::Tensor& whole = outcome.state[piece.parameter + "/" + piece.state];
    int64_t numel = 1;
    for (int64_t d : piece.shape) numel *= d;
    if (!whole.defined()) whole = at::full({numel}, std::nan(""));
    whole.narrow(0, piece.offset, piece.length).copy_(piece.data);
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
    p.model = std::make_unique<PoisonedModel>(poisoned, static_cast<int64_t>(s.poison_from));
    p.optimizer = host().create<zerolab::Optimizer>(experiment);
    p.scheduler = host().create<zerolab::Scheduler>(experiment);
    p.precision = host().create<zerolab::Precision>(experiment);
    p.sharding = host().create<zerolab::Sharding>(experiment);
  }
  Outcome outcome;
  outcome.held.resize(static_cast<size_t>(s.ranks));
  std::mutex mutex;
  zerolab::run_on_threads(s.ranks, [&](zerolab::Communicator& world) {
    zerolab::Trainer trainer(experiment, plugins[static_cast<size_t>(world.rank())], world);
    for (int64_t step = 0; step < s.steps; ++step) {
      const zerolab::StepRecord record = trainer.step(step);
      if (world.rank() != s.ranks - 1) continue;
      outcome.losses.push_back(record.loss);
      outcome.norms.push_back(record.grad_norm);
      outcome.skipped.push_back(record.skipped);
      outcome.bytes_moved = record.bytes_moved;
    }
    const double val_loss = trainer.validate();
    const std::lock_guard lock(mutex);
    outcome.val_losses.push_back(val_loss);
    outcome.held[static_cast<size_t>(world.rank())] = trainer.sharding().held_bytes();
    collect_state(trainer, outcome);
    if (world.rank() != s.ranks - 1) return;
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
  check_same_tensors(a.parameters, b.parameters);
  check_same_tensors(a.state, b.state);
}

std::string title(const Setting& s) {
  return s.sharding + ", " + std::to_string(s.ranks) + " ranks, accumulation " +
         std::to_string(s.accumulation) + ", " + s.precision + ", reduce every " + s.reduce_every;
}

}  // namespace

TEST_CASE("every strategy is bit-identical to every other at 1, 2, 3 and 4 ranks") {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int64_t accumulation : {1, 3}) {
      for (const char* precision : {"fp32", "amp_bf16"}) {
        const std::string reduce_every = (ranks + accumulation) % 2 == 0 ? "micro_batch" : "step";
        Setting s{.precision = precision,
                  .reduce_every = reduce_every,
                  .ranks = ranks,
                  .accumulation = accumulation};
        const Outcome reference = run(s);
        for (const std::string& strategy : host().names(Kind::kSharding)) {
          s.sharding = strategy;  // the reference itself, too: the device has to repeat itself
          INFO(title(s));
          check_bit_identical(reference, run(s));
        }
        CHECK(reference.losses.front() != reference.losses.back());
      }
    }
  }
}

TEST_CASE(
    "reducing each micro-batch does not change with the strategy either, and bucket sizes change "
    "nothing") {
  Setting s{.ranks = 3, .accumulation = 3};
  const Outcome reference = run(s);
  for (const char* strategy : {"ddp", "zero1", "zero2"}) {
    for (const int64_t bucket : {1, 500, 100000}) {
      s.sharding = strategy;
      s.bucket = bucket;
      INFO(title(s) << ", bucket " << bucket);
      check_bit_identical(reference, run(s));
    }
  }
}

TEST_CASE("1, 2 and 4 ranks give the same bits for the same total batch") {
  const Outcome one = run({.ranks = 1, .accumulation = 4});
  const Outcome two = run({.sharding = "zero2", .ranks = 2, .accumulation = 2});
  const Outcome four = run({.sharding = "zero1", .ranks = 4, .accumulation = 1});
  for (const Outcome* other : {&two, &four}) {
    CHECK(one.losses == other->losses);
    CHECK(one.norms == other->norms);
    CHECK(one.val_losses.front() == other->val_losses.front());
    check_same_tensors(one.state, other->state);
  }
}

TEST_CASE(
    "the validation loss has the same bits on any number of ranks, with fewer samples than ranks "
    "too") {
  for (const int64_t samples : {1, 3, 5, 37}) {
    const Outcome alone = run({.ranks = 1, .steps = 0, .num_samples = samples});
    for (const int ranks : {2, 3, 4}) {
      const Outcome several = run({.ranks = ranks, .steps = 0, .num_samples = samples});
      for (const double loss : several.val_losses) CHECK(loss == alone.val_losses.front());
    }
  }
}

TEST_CASE("a frozen parameter keeps its values, an unused one only decays") {
  const Outcome start = run({.steps = 0}), end = run({.sharding = "zero2", .ranks = 2});
  CHECK(at::equal(start.parameters.at("block.0.frozen"), end.parameters.at("block.0.frozen")));
  const at::Tensor expected = start.parameters.at("unused").mul(std::pow(1 - 0.01 * 0.1, 4));
  // Four float32 multiplications against one: within a few units in the last place.
  CHECK(end.parameters.at("unused").allclose(expected, 1e-6, 0));
  CHECK_FALSE(at::equal(start.parameters.at("temperature"), end.parameters.at("temperature")));
}

TEST_CASE("a gradient that is not finite on one rank makes all ranks skip together") {
  for (const char* strategy : {"ddp", "zero1", "zero2"}) {
    for (const int ranks : {1, 2, 3}) {
      Setting s{.sharding = strategy, .ranks = ranks, .steps = 2};
      const Outcome before = run(s);
      s.steps = 4;
      s.poison_from = 2;
      const Outcome after = run(s);
      CHECK(after.skipped == std::vector<bool>{false, false, true, true});
      check_same_tensors(before.parameters, after.parameters);
      check_same_tensors(before.state, after.state);
    }
  }
}

TEST_CASE("bytes held fall as the strategy shards, padding included") {
  for (const int ranks : {1, 2, 3, 4}) {
    const Outcome ddp = run({.ranks = ranks}), zero1 = run({.sharding = "zero1", .ranks = ranks}),
                  zero2 = run({.sharding = "zero2", .ranks = ranks});
    for (int r = 0; r < ranks; ++r) {
      const auto rank = static_cast<size_t>(r);
      CHECK(zero1.held[rank].optimizer * ranks == ddp.held[rank].optimizer);
      CHECK(zero2.held[rank].optimizer * ranks == ddp.held[rank].optimizer);
      CHECK(zero1.held[rank].gradients == ddp.held[rank].gradients);
      CHECK(zero2.held[rank].gradients * ranks == ddp.held[rank].gradients);
      CHECK(zero2.held[rank].parameters == ddp.held[rank].parameters);
    }
  }
}

TEST_CASE(
    "each strategy moves 2P(N-1)/N elements a step, and (A+1)P(N-1)/N with A reduced "
    "micro-batches") {
  for (const int ranks : {2, 3, 4}) {
    for (const int64_t accumulation : {1, 3}) {
      for (const char* strategy : {"ddp", "zero1", "zero2"}) {
        const Outcome outcome =
            run({.sharding = strategy, .ranks = ranks, .accumulation = accumulation});
        // Eight bytes of optimizer state for each padded element of this rank's share (all of them
        // for ddp).
        const int64_t padded =
            outcome.held[0].optimizer / 8 * (strategy == std::string("ddp") ? 1 : ranks);
        CHECK(outcome.bytes_moved == (accumulation + 1) * padded * 4 / ranks * (ranks - 1));
      }
    }
  }
}
