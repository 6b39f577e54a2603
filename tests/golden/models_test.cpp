// Models against the same networks in PyTorch, in double precision, from the same weights.
//
// Legend: B sequences, T tokens, V vocabulary.

#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>

#include "golden_file.h"
#include "golden_model.h"
#include "near.h"

namespace {

/// One float32 forward through two or three blocks rounds a few hundred times at 6e-8.
constexpr double kForward = 1e-5;
/// Gradients pass the network twice, and small ones are sums of larger terms.
constexpr double kGradients = 1e-5;

void check_forward(GoldenModel& ours, const GoldenFile& golden, const std::string& at) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits_BTV = ours.model().logits(golden.tensor(at + "/tokens"), ours.units());
  CHECK(relative_distance(logits_BTV, golden.tensor(at + "/logits")) < kForward);

  // Another token in the middle changes nothing before it, and what comes after it as it should.
  const auto position = static_cast<int64_t>(golden.number(at, "changed_position"));
  const bool causal = golden.number(at, "causal") != 0;
  const at::Tensor changed_BTV =
      ours.model().logits(golden.tensor(at + "/changed_tokens"), ours.units());
  const auto same = [&](int64_t first, int64_t count) {
    return at::equal(changed_BTV.narrow(1, first, count), logits_BTV.narrow(1, first, count));
  };
  CHECK(same(0, position) == causal);
  CHECK_FALSE(same(position + 1, 1));
  CHECK(relative_distance(changed_BTV, golden.tensor(at + "/changed_logits")) < kForward);
}

void check_gradients(GoldenModel& ours, const GoldenFile& golden, const std::string& at) {
  zerolab::Batch batch{golden.tensor(at + "/tokens"), golden.tensor(at + "/targets"), 0};
  batch.num_targets = batch.targets.ne(zerolab::kIgnoredTarget).sum().item<int64_t>();
  ours.units().begin(/*training=*/true, 1);
  const at::Tensor loss = ours.model().loss(batch, ours.units());
  CHECK(relative_distance(loss, golden.tensor(at + "/loss")) < kForward);
  loss.backward();
  ours.units().end();
  ours.units().begin(/*training=*/false, 0);
  const Weights gradients =
      ours.of_each([](const at::Tensor& p) { return p.grad(); }, golden.text(at, "layout"));
  for (const auto& [name, expected] : read_weights(golden, at + "/gradients")) {
    CAPTURE(name);
    REQUIRE(gradients.contains(name));
    CHECK(relative_distance(gradients.at(name), expected) < kGradients);
  }
}

void check_model(const std::string& part) {
  const GoldenFile golden(part);
  int settings = 0;
  for (const std::string& at : golden.names("")) {
    DYNAMIC_SECTION(at) {
      GoldenModel ours(
          golden.text(at, "model"), golden.options(at + "/options"),
          {.vocab_size = static_cast<int64_t>(golden.number(at, "vocab_size")),
           .sequence_length = static_cast<int64_t>(golden.number(at, "sequence_length"))});
      ours.set(read_weights(golden, at + "/weights"), golden.text(at, "layout"));
      check_forward(ours, golden, at);
      check_gradients(ours, golden, at);
    }
    ++settings;
  }
  CHECK(settings > 0);
}

}  // namespace

TEST_CASE("model/gpt computes what PyTorch computes, and looks at no later token") {
  check_model("gpt");
}

TEST_CASE(
    "model/mini_gpt computes what nn.TransformerEncoder computes, and looks at no later token") {
  check_model("mini_gpt");
}

TEST_CASE("model/llama computes what transformers computes, and looks at no later token") {
  check_model("llama");
}
