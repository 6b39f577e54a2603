#include "optimizer_fixture.h"

namespace {

using optimizer_test::Flat;

const optimizer_test::Subject kAdamW = {
    "optimizer/adamw",
    {{"betas", std::vector<double>{0.9, 0.95}}, {"weight_decay", 0.1}, {"eps", 1e-8}}};

/// One element in double precision, as PyTorch's torch.optim.AdamW documents it.
struct Scalar {
  double p, m = 0, v = 0;
  void update(double g, double lr, bool decay, int64_t t) {
    const double b1 = 0.9, b2 = 0.95;
    if (decay) p -= lr * 0.1 * p;
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    const double m_hat = m / (1 - std::pow(b1, static_cast<double>(t)));
    const double v_hat = v / (1 - std::pow(b2, static_cast<double>(t)));
    p -= lr * m_hat / (std::sqrt(v_hat) + 1e-8);
  }
};

}  // namespace

TEST_CASE("optimizer/adamw names its states as PyTorch does") {
  const auto optimizer = load_plugin<zerolab::Optimizer>("optimizer/adamw");
  CHECK(optimizer->state_names() == std::vector<std::string>{"exp_avg", "exp_avg_sq"});
}

TEST_CASE("optimizer/adamw gives the same bits wherever a range is cut and with two threads") {
  optimizer_test::check_cuts(kAdamW);
}

TEST_CASE("optimizer/adamw follows the formula in double precision") {
  // Float32 rounding over 50 updates of about lr each: some units in the last place.
  optimizer_test::check_formula<Scalar>(
      kAdamW, [](double p) { return Scalar{p}; }, 50, 2e-6);
}

TEST_CASE("optimizer/adamw moves by lr at the first update, whatever the size of the gradient") {
  const auto optimizer = kAdamW.make();
  for (double size : {1e-4, 1.0, 1e4}) {
    Flat flat = kAdamW.flat(16);
    const at::Tensor before = flat.parameters.clone();
    std::vector<zerolab::OptimizerRange> ranges = {flat.range(0, 16, false, size)};
    optimizer->update(ranges, {.lr = 0.01, .step = 1});
    for (int64_t i = 0; i < 16; ++i) {
      const double moved = before[i].item<double>() - flat.parameters[i].item<double>();
      const double sign = flat.gradients[i].item<double>() > 0 ? 1 : -1;
      CHECK(moved == Approx(0.01 * sign).epsilon(1e-3));
    }
  }
}

TEST_CASE(
    "optimizer/adamw decays a parameter whose gradient is zero, and only where decay is asked "
    "for") {
  const auto optimizer = kAdamW.make();
  Flat flat = kAdamW.flat(32);
  const at::Tensor before = flat.parameters.clone();
  std::vector<zerolab::OptimizerRange> ranges = {flat.range(0, 16, true, 0),
                                                 flat.range(16, 32, false, 0)};
  optimizer->update(ranges, {.lr = 0.5, .step = 1});
  CHECK(at::equal(flat.parameters.narrow(0, 16, 16), before.narrow(0, 16, 16)));
  for (int64_t i = 0; i < 16; ++i) {
    CHECK(flat.parameters[i].item<double>() ==
          Approx(before[i].item<double>() * 0.95).epsilon(1e-6));
  }
}

TEST_CASE("optimizer/adamw keeps zero elements at zero, whatever eps: padding stays padding") {
  optimizer_test::check_padding(kAdamW);
  optimizer_test::check_padding({"optimizer/adamw", {{"eps", 1e-60}}});  // zero as a float32
}

TEST_CASE("optimizer/adamw takes no ranges and empty ranges") {
  const auto optimizer = load_plugin<zerolab::Optimizer>("optimizer/adamw");
  CHECK_NOTHROW(optimizer->update({}, {.lr = 0.1, .step = 1}));
  Flat flat = kAdamW.flat(16);
  std::vector<zerolab::OptimizerRange> ranges = {flat.range(0, 0, true)};
  CHECK_NOTHROW(optimizer->update(ranges, {.lr = 0.1, .step = 1}));
}

TEST_CASE("optimizer/adamw refuses betas that are not two numbers below one") {
  using List = std::vector<double>;
  CHECK_FALSE(option_problems("optimizer/adamw", {{"betas", List{0.9}}}).empty());
  CHECK_FALSE(option_problems("optimizer/adamw", {{"betas", List{0.9, 1.0}}}).empty());
  CHECK_FALSE(option_problems("optimizer/adamw", {{"betas", List{-0.1, 0.9}}}).empty());
  CHECK(option_problems("optimizer/adamw", {{"betas", List{0, 0.999}}}).empty());
  CHECK_FALSE(option_problems("optimizer/adamw", {{"weight_decay", -0.1}}).empty());
  CHECK_FALSE(option_problems("optimizer/adamw", {{"eps", 0.0}}).empty());
}
