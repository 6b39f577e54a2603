#include "plan/activations.h"

#include <ATen/ops/zeros.h>

#include "zerolab/model.h"

#include "built_plugins.h"
#include "catch.h"
#include "train/tensor_memory.h"

using zerolab::Kind;

namespace {

constexpr int64_t kSequences = 2, kTokens = 32, kWords = 50;

std::unique_ptr<zerolab::Model> declared_gpt(zerolab::Parameters& parameters) {
  zerolab::Experiment experiment;
  zerolab::PluginChoice& choice = experiment.plugins[static_cast<size_t>(Kind::kModel)];
  choice.name = "gpt";
  choice.options = host().entry(Kind::kModel, "gpt").schema().defaults();
  choice.options["num_layers"] = int64_t{3};
  choice.options["num_heads"] = int64_t{4};
  choice.options["embedding_dim"] = int64_t{64};
  auto model = host().create<zerolab::Model>(experiment);
  model->declare(parameters, {kWords, kTokens});
  return model;
}

/// Bytes that are there between a forward and its backward, and were not before.
int64_t counted_activations(at::ScalarType dtype, bool checkpointing) {
  zerolab::count_tensor_memory();
  zerolab::Parameters parameters;
  const auto model = declared_gpt(parameters);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor memory = at::zeros({parameters.info(i).numel}, at::dtype(dtype));
    parameters.bind(i, memory, 0);
    parameters.initialize(i, 1);
  }
  const at::Tensor tokens_BT = at::zeros({kSequences, kTokens}, at::dtype(at::kLong));
  zerolab::Units units;
  units.set_activation_checkpointing(checkpointing);
  units.begin(true, 1);
  const int64_t before = zerolab::live_tensor_bytes();
  const at::Tensor loss = model->loss({tokens_BT, tokens_BT, kSequences * kTokens}, units);
  const int64_t kept = zerolab::live_tensor_bytes() - before;
  units.end();
  return kept;
}

int64_t estimated_activations(at::ScalarType dtype, bool checkpointing) {
  zerolab::Parameters parameters;
  const auto model = declared_gpt(parameters);
  return zerolab::activation_bytes(parameters, kSequences * kTokens, dtype, checkpointing);
}

}  // namespace

TEST_CASE("the estimate is within five percent of what a GPT keeps for its backward") {
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto counted = static_cast<double>(counted_activations(dtype, false));
    CHECK(counted > 0);
    CHECK(static_cast<double>(estimated_activations(dtype, false)) ==
          Approx(counted).epsilon(0.05));
  }
}

TEST_CASE("activation checkpointing keeps the inputs of units, and one unit whole") {
  zerolab::Parameters parameters;
  parameters.declare("root", {11, 3}, zerolab::Init::zeros());
  parameters.begin_unit("first");
  parameters.declare("first.matrix", {5, 7}, zerolab::Init::zeros());
  parameters.declare("first.vector", {100}, zerolab::Init::zeros());
  parameters.declare("first.empty", {0, 3}, zerolab::Init::zeros());
  parameters.begin_unit("second");
  parameters.declare("second.wide", {4, 20}, zerolab::Init::zeros());
  parameters.declare("second.narrow", {20, 4}, zerolab::Init::zeros());
  CHECK(zerolab::activation_bytes(parameters, 10, at::kFloat, false) ==
        10 * 4 * (14 + 12 + 24 + 24));
  CHECK(zerolab::activation_bytes(parameters, 10, at::kFloat, true) == 10 * 4 * (14 + 7 + 4 + 48));
  CHECK(zerolab::activation_bytes(parameters, 10, at::kBFloat16, true) ==
        10 * 2 * (14 + 7 + 4 + 48));
}

TEST_CASE("with checkpointing the estimate is what stays, and the unit that is run again") {
  const auto counted = static_cast<double>(counted_activations(at::kFloat, true));
  const auto unit = static_cast<double>(kSequences * kTokens * 16 * 64 * 4);
  const auto estimated = static_cast<double>(estimated_activations(at::kFloat, true));
  CHECK(estimated < 0.7 * static_cast<double>(estimated_activations(at::kFloat, false)));
  CHECK(estimated == Approx(counted + unit).epsilon(0.15));
}
