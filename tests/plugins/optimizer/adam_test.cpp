#include "optimizer_fixture.h"

namespace {

using optimizer_test::Flat;

const optimizer_test::Subject kAdam = {
    "optimizer/adam", {{"betas", std::vector<double>{0.9, 0.95}}, {"weight_decay", 0.1}}};

/// One element in double precision, as PyTorch's torch.optim.Adam documents it.
struct Scalar {
  double p, m = 0, v = 0;
  void update(double g, double lr, bool decay, int64_t t) {
    const double b1 = 0.9, b2 = 0.95;
    if (decay) g += 0.1 * p;
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    const double m_hat = m / (1 - std::pow(b1, static_cast<double>(t)));
    const double v_hat = v / (1 - std::pow(b2, static_cast<double>(t)));
    p -= lr * m_hat / (std::sqrt(v_hat) + 1e-8);
  }
};

}  // namespace

TEST_CASE("optimizer/adam names its states as PyTorch does") {
  CHECK(kAdam.make()->state_names() == std::vector<std::string>{"exp_avg", "exp_avg_sq"});
}

TEST_CASE("optimizer/adam gives the same bits wherever a range is cut and with two threads") {
  optimizer_test::check_cuts(kAdam);
}

TEST_CASE("optimizer/adam follows the formula in double precision, decay as part of the gradient") {
  // Float32 rounding over 50 updates of about lr each: some units in the last place.
  optimizer_test::check_formula<Scalar>(
      kAdam, [](double p) { return Scalar{p}; }, 50, 2e-6);
}

TEST_CASE("optimizer/adam does not decay unless told to") {
  const auto optimizer = load_plugin<zerolab::Optimizer>("optimizer/adam");
  Flat flat = kAdam.flat(16);
  const at::Tensor before = flat.parameters.clone();
  std::vector<zerolab::OptimizerRange> ranges = {flat.range(0, 16, true, 0)};
  optimizer->update(ranges, {.lr = 0.5, .step = 1});
  CHECK(at::equal(flat.parameters, before));
}

TEST_CASE("optimizer/adam keeps zero elements at zero, whatever eps") {
  optimizer_test::check_padding(kAdam);
  optimizer_test::check_padding({"optimizer/adam", {{"eps", 1e-60}}});  // zero as a float32
}

TEST_CASE("optimizer/adam refuses betas that are not two numbers below one") {
  using List = std::vector<double>;
  CHECK_FALSE(option_problems("optimizer/adam", {{"betas", List{0.9}}}).empty());
  CHECK_FALSE(option_problems("optimizer/adam", {{"betas", List{0.9, 1.0}}}).empty());
  CHECK_FALSE(option_problems("optimizer/adam", {{"weight_decay", -0.1}}).empty());
  CHECK(option_problems("optimizer/adam", {{"betas", List{0, 0.999}}}).empty());
}
