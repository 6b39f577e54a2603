// Optimizers against torch.optim (and Lion's paper) in double precision: 20 updates of a range with
// weight decay and one without.

#include <string>
#include <vector>

#include <ATen/ops/zeros.h>

#include "zerolab/optimizer.h"

#include "golden_file.h"
#include "near.h"
#include "plugins/load_plugin.h"

namespace {

/// Twenty updates round each parameter twenty times, at most 6e-8 of it each.
constexpr double kTolerance = 1e-6;

/// Parameters and states of both ranges, [2, elements].
struct Trained {
  at::Tensor parameters, first;
  std::vector<at::Tensor> states;
};

Trained train(zerolab::Optimizer& optimizer, const GoldenFile& golden) {
  const at::Tensor gradients = golden.tensor("gradients");
  Trained t;
  t.parameters = golden.tensor("start");
  for (size_t i = 0; i < optimizer.state_names().size(); ++i) {
    t.states.push_back(at::zeros(t.parameters.sizes()));
  }
  const double lr = golden.number("", "lr");
  for (int64_t step = 0; step < gradients.size(0); ++step) {
    std::vector<zerolab::OptimizerRange> ranges;
    for (int64_t row = 0; row < 2; ++row) {
      // Half of it comes back as the multiplier, as clipping would do it.
      zerolab::OptimizerRange range;
      range.parameters = t.parameters[row];
      range.gradients = gradients[step][row].mul(2);
      range.decay = row == 0;
      for (const at::Tensor& state : t.states) range.states.push_back(state[row]);
      ranges.push_back(std::move(range));
    }
    optimizer.update(ranges, {lr, step + 1, 0.5});
    if (step == 0) t.first = t.parameters.clone();
  }
  return t;
}

void check_optimizer(const std::string& wanted) {
  const GoldenFile golden("optimizers");
  int settings = 0;
  for (const std::string& title : golden.names("settings")) {
    const std::string at = "settings/" + title;
    if (golden.text(at, "optimizer") != wanted) continue;
    ++settings;
    CAPTURE(title);
    const auto optimizer =
        load_plugin<zerolab::Optimizer>("optimizer/" + wanted, golden.options(at + "/options"));
    const Trained ours = train(*optimizer, golden);
    CHECK(relative_distance(ours.first, golden.tensor(at + "/first")) < kTolerance);
    CHECK(relative_distance(ours.parameters, golden.tensor(at + "/last")) < kTolerance);
    CHECK(relative_distance(ours.first, golden.tensor("start")) > 1e-3);  // it moves at all
    const std::vector<std::string> states = optimizer->state_names();
    CHECK(states.size() == golden.names(at + "/states").size());
    for (size_t i = 0; i < states.size(); ++i) {
      CAPTURE(states[i]);  // a state is found by PyTorch's name for it
      CHECK(relative_distance(ours.states[i], golden.tensor(at + "/states/" + states[i])) <
            kTolerance);
    }
  }
  CHECK(settings >= 2);
}

}  // namespace

TEST_CASE("optimizer/adamw is where torch.optim.AdamW is after 20 steps") {
  check_optimizer("adamw");
}

TEST_CASE("optimizer/adam is where torch.optim.Adam is after 20 steps") {
  check_optimizer("adam");
}

TEST_CASE("optimizer/sgd is where torch.optim.SGD is after 20 steps") {
  check_optimizer("sgd");
}

TEST_CASE("optimizer/lion is where its paper's algorithm is after 20 steps") {
  check_optimizer("lion");
}
