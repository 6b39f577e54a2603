#include "plan/activations.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>

#include "zerolab/model.h"

#include "built_plugins.h"
#include "catch.h"

using zerolab::Kind;

namespace {

/// Counts the CPU memory of tensors while it lives.
class CountingAllocator : public c10::Allocator {
 public:
  CountingAllocator() : before_(c10::GetAllocator(c10::kCPU)) {
    c10::SetAllocator(c10::kCPU, this, kPriority);
  }
  ~CountingAllocator() override { c10::SetAllocator(c10::kCPU, before_, kPriority); }
  static int64_t live() { return live_; }

  c10::DataPtr allocate(size_t n) override {
    void* const memory = std::malloc(std::max<size_t>(n, 1));
    sizes_[memory] = static_cast<int64_t>(n);
    live_ += static_cast<int64_t>(n);
    return {memory, memory, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t n) const override {
    default_copy_data(to, from, n);
  }

 private:
  static constexpr uint8_t kPriority = 200;
  static void release(void* memory) {
    live_ -= sizes_[memory];
    sizes_.erase(memory);
    std::free(memory);
  }
  static inline std::map<void*, int64_t> sizes_;
  static inline int64_t live_ = 0;
  c10::Allocator* before_;
};

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
  const CountingAllocator allocator;
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
  const int64_t before = CountingAllocator::live();
  const at::Tensor loss = model->loss({tokens_BT, tokens_BT, kSequences * kTokens}, units);
  const int64_t kept = CountingAllocator::live() - before;
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
