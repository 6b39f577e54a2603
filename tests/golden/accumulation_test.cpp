// The gradient of 32 sequences as PyTorch computes it at once, against what the trainer gives the
// optimizer when it cuts them into micro-batches and ranks; and the same clipped.

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include "zerolab/data.h"
#include "zerolab/optimizer.h"
#include "zerolab/state.h"

#include "built_plugins.h"
#include "distributed/world.h"
#include "golden_file.h"
#include "golden_model.h"
#include "near.h"
#include "train/trainer.h"

namespace {

using zerolab::Kind;

/// Float32 sums of 32 sequences' gradients, in another order for each cut.
constexpr double kTolerance = 1e-6;

/// Keeps the gradient that it is given, and changes nothing.
class GradientKeeper : public zerolab::Optimizer {
 public:
  std::vector<std::string> state_names() const override { return {"gradient"}; }
  void update(std::span<zerolab::OptimizerRange> ranges, const zerolab::UpdateStep& step) override {
    for (zerolab::OptimizerRange& range : ranges) {
      range.states[0].copy_(range.gradients.mul(step.gradient_multiplier));
    }
  }
};

/// The recorded sequences, one a sample.
class RecordedData : public zerolab::Data {
 public:
  explicit RecordedData(const GoldenFile& golden)
      : tokens_(golden.tensor("tokens")),
        targets_(golden.tensor("targets")),
        vocab_size_(static_cast<int64_t>(golden.number("", "vocab_size"))) {}
  void open(const zerolab::DataContext&) override {}
  int64_t vocab_size() const override { return vocab_size_; }
  int64_t size(zerolab::Split) const override { return tokens_.size(0); }
  void sample(zerolab::Split, int64_t index, std::span<int64_t> tokens,
              std::span<int64_t> targets) const override {
    const auto length = static_cast<size_t>(tokens_.size(1));
    const auto offset = static_cast<size_t>(index) * length;
    std::copy_n(tokens_.const_data_ptr<int64_t>() + offset, length, tokens.begin());
    std::copy_n(targets_.const_data_ptr<int64_t>() + offset, length, targets.begin());
  }

 private:
  at::Tensor tokens_, targets_;
  int64_t vocab_size_;
};

struct Cut {
  int ranks;
  int64_t micro_batch_size, accumulation;
  std::string sharding = "ddp", reduce_every = "micro_batch";
};

zerolab::Experiment experiment_of(const Cut& cut, const GoldenFile& golden, double clipping) {
  zerolab::Experiment e;
  e.name = "golden";
  e.steps = 1;
  e.gradient_clipping = clipping;
  e.batch.sequence_length = golden.tensor("tokens").size(1);
  e.batch.micro_batch_size = cut.micro_batch_size;
  e.batch.gradient_accumulation_steps = cut.accumulation;
  e.batch.total_batch_size = cut.micro_batch_size * cut.accumulation * cut.ranks;
  e.batch.reduce_every = cut.reduce_every;
  const std::pair<Kind, std::string> plugins[] = {{Kind::kModel, "gpt"},
                                                  {Kind::kScheduler, "constant"},
                                                  {Kind::kPrecision, "fp32"},
                                                  {Kind::kSharding, cut.sharding}};
  for (const auto& [kind, name] : plugins) {
    zerolab::PluginChoice& choice = e.plugins[static_cast<size_t>(kind)];
    choice.name = name;
    choice.options = host().entry(kind, name).schema().defaults();
  }
  for (const auto& [name, value] : golden.options("options")) {
    e.plugins[static_cast<size_t>(Kind::kModel)].options.insert_or_assign(name, value);
  }
  return e;
}

struct Given {
  double loss = 0, norm = 0;
  Weights gradients;  ///< by our own names, flat
};

/// Writes weights (by our own names) into what a rank holds of them.
void write_state(zerolab::Sharding& sharding, const Weights& weights) {
  for (const zerolab::StatePiece& piece : sharding.state()) {
    if (piece.state != "parameter") continue;
    piece.data.copy_(weights.at(piece.parameter).flatten().narrow(0, piece.offset, piece.length));
  }
  sharding.state_restored();
}

Given train(const Cut& cut, const GoldenFile& golden, const Weights& weights, double clipping) {
  const zerolab::Experiment experiment = experiment_of(cut, golden, clipping);
  std::vector<zerolab::TrainingPlugins> plugins(static_cast<size_t>(cut.ranks));
  for (zerolab::TrainingPlugins& p : plugins) {
    p.data = std::make_unique<RecordedData>(golden);
    p.model = host().create<zerolab::Model>(experiment);
    p.optimizer = std::make_unique<GradientKeeper>();
    p.scheduler = host().create<zerolab::Scheduler>(experiment);
    p.precision = host().create<zerolab::Precision>(experiment);
    p.sharding = host().create<zerolab::Sharding>(experiment);
  }
  Given given;
  std::mutex mutex;
  zerolab::run_on_threads(cut.ranks, [&](zerolab::Communicator& world) {
    zerolab::Trainer trainer(experiment, plugins[static_cast<size_t>(world.rank())], world);
    write_state(trainer.sharding(), weights);
    const zerolab::StepRecord record = trainer.step();
    const std::lock_guard lock(mutex);
    given.loss = record.loss;
    given.norm = record.grad_norm;
    for (const zerolab::StatePiece& piece : trainer.sharding().state()) {
      if (piece.state != "gradient") continue;
      at::Tensor& whole = given.gradients[piece.parameter];
      if (!whole.defined()) whole = at::full({weights.at(piece.parameter).numel()}, std::nan(""));
      whole.narrow(0, piece.offset, piece.length).copy_(piece.data);
    }
  });
  return given;
}

/// Recorded tensors by our own names.
Weights by_own_names(const GoldenFile& golden, const std::string& group) {
  GoldenModel model("gpt", golden.options("options"),
                    {.vocab_size = static_cast<int64_t>(golden.number("", "vocab_size")),
                     .sequence_length = golden.tensor("tokens").size(1)});
  model.set(read_weights(golden, group), "nanogpt");
  return model.of_each([](const at::Tensor& p) { return p.detach().clone(); }, "");
}

void check_gradients(const Weights& got, const Weights& expected) {
  REQUIRE(got.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    CAPTURE(name);
    CHECK(relative_norm(got.at(name), tensor.flatten()) < kTolerance);
  }
}

const std::vector<Cut>& cuts() {
  static const std::vector<Cut> all = {{1, 32, 1},
                                       {1, 8, 4},
                                       {1, 8, 4, "ddp", "step"},
                                       {1, 2, 16},
                                       {2, 16, 1},
                                       {2, 8, 2},
                                       {2, 4, 4},
                                       {2, 4, 4, "zero2"},
                                       {2, 4, 4, "zero3"},
                                       {4, 8, 1, "zero2"},
                                       {4, 2, 4, "zero1", "step"}};
  return all;
}

}  // namespace

TEST_CASE(
    "4 micro-batches of 8 give the gradient of one of 32, PyTorch's, on any number of ranks") {
  at::set_num_threads(1);
  const GoldenFile golden("accumulation");
  const Weights weights = by_own_names(golden, "weights");
  const Weights gradients = by_own_names(golden, "gradients");
  const Weights at_once = train(cuts().front(), golden, weights, 0).gradients;
  for (const Cut& cut : cuts()) {
    CAPTURE(cut.ranks, cut.micro_batch_size, cut.accumulation, cut.sharding, cut.reduce_every);
    const Given given = train(cut, golden, weights, 0);
    CHECK(given.loss == Approx(golden.numbers("loss").front()).epsilon(kTolerance));
    CHECK(given.norm == Approx(golden.number("", "norm")).epsilon(kTolerance));
    check_gradients(given.gradients, gradients);
    check_gradients(given.gradients, at_once);
  }
}

TEST_CASE("clipped gradients are those that clip_grad_norm_ leaves") {
  at::set_num_threads(1);
  const GoldenFile golden("accumulation");
  const Weights weights = by_own_names(golden, "weights");
  const double largest = golden.number("", "max_norm");
  REQUIRE(golden.number("", "norm") > largest);
  for (const Cut& cut : {Cut{1, 8, 4}, Cut{2, 4, 4, "zero2"}}) {
    CAPTURE(cut.ranks, cut.sharding);
    const Given given = train(cut, golden, weights, largest);
    CHECK(given.norm == Approx(golden.number("", "norm")).epsilon(kTolerance));
    check_gradients(given.gradients, by_own_names(golden, "clipped"));
  }
}
