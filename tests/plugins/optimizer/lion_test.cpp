#include "optimizer_fixture.h"

namespace {

using optimizer_test::Flat;

const optimizer_test::Subject kLion = {"optimizer/lion", {{"weight_decay", 0.1}}};

/// One element in double precision: algorithm 2 of the paper.
struct Scalar {
  double p, m = 0;
  void update(double g, double lr, bool decay, int64_t /*t*/) {
    const double c = 0.9 * m + 0.1 * g;
    const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
    p -= lr * (sign + (decay ? 0.1 * p : 0));
    m = 0.99 * m + 0.01 * g;
  }
};

}  // namespace

TEST_CASE("optimizer/lion keeps one running average") {
  CHECK(kLion.make()->state_names() == std::vector<std::string>{"exp_avg"});
}

TEST_CASE("optimizer/lion gives the same bits wherever a range is cut and with two threads") {
  optimizer_test::check_cuts(kLion);
}

TEST_CASE("optimizer/lion follows the formula in double precision") {
  optimizer_test::check_formula<Scalar>(
      kLion, [](double p) { return Scalar{p}; }, 50, 2e-6);
}

TEST_CASE("optimizer/lion moves every element by lr, whatever the size of its gradient") {
  const auto optimizer = kLion.make();
  for (double size : {1e-6, 1.0, 1e6}) {
    Flat flat = kLion.flat(16);
    const at::Tensor before = flat.parameters.clone();
    std::vector<zerolab::OptimizerRange> ranges = {flat.range(0, 16, false, size)};
    optimizer->update(ranges, {.lr = 0.01, .step = 1});
    const at::Tensor moved = before.sub(flat.parameters).mul(flat.gradients.sign());
    CHECK(moved.sub(0.01).abs().max().item<double>() < 1e-6);
  }
}

TEST_CASE("optimizer/lion keeps zero elements at zero: zero has no sign") {
  optimizer_test::check_padding(kLion);
}

TEST_CASE("optimizer/lion refuses betas that are not two numbers below one") {
  using List = std::vector<double>;
  CHECK_FALSE(option_problems("optimizer/lion", {{"betas", List{0.9}}}).empty());
  CHECK_FALSE(option_problems("optimizer/lion", {{"betas", List{0.9, 1.0}}}).empty());
  CHECK_FALSE(option_problems("optimizer/lion", {{"weight_decay", -0.1}}).empty());
}
