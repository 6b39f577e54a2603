#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "zerolab/optimizer.h"
#include "zerolab/random.h"

#include "catch.h"
#include "load_plugin.h"

namespace {

using zerolab::kRangeAlignment;

/// Parameters and states of one flat space, and how they move under a fixed sequence of gradients.
struct Flat {
  explicit Flat(int64_t n)
      : parameters(at::randn({n}, zerolab::make_generator(1))),
        gradients(at::randn({n}, zerolab::make_generator(2))),
        average(at::zeros({n})),
        square(at::zeros({n})) {}
  at::Tensor parameters, gradients, average, square;

  zerolab::OptimizerRange range(int64_t begin, int64_t end, bool decay, double factor = 1) const {
    const auto cut = [&](const at::Tensor& x) { return x.narrow(0, begin, end - begin); };
    return {cut(parameters), cut(gradients).mul(factor), {cut(average), cut(square)}, decay};
  }
  bool same_bits(const Flat& other) const {
    return at::equal(parameters, other.parameters) && at::equal(average, other.average) &&
           at::equal(square, other.square);
  }
};

zerolab::OptionValues options() {
  return {{"betas", std::vector<double>{0.9, 0.95}}, {"weight_decay", 0.1}, {"eps", 1e-8}};
}

/// Three updates with the space cut at `cuts`; elements before `first_plain` decay.
Flat updated(int64_t n, const std::vector<int64_t>& cuts, int64_t first_plain) {
  const auto optimizer = load_plugin<zerolab::Optimizer>("optimizer/adamw", options());
  Flat flat(n);
  for (int64_t step = 1; step <= 3; ++step) {
    std::vector<zerolab::OptimizerRange> ranges;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      ranges.push_back(
          flat.range(cuts[i], cuts[i + 1], cuts[i] < first_plain, 0.1 * static_cast<double>(step)));
    }
    optimizer->update(ranges, {.lr = 1e-2, .step = step, .gradient_multiplier = 0.7});
  }
  return flat;
}

/// One element in double precision, as PyTorch's torch.optim.AdamW documents it.
struct Scalar {
  double p, m = 0, v = 0;
  void update(double g, double lr, double b1, double b2, double eps, double decay, int64_t t) {
    p -= lr * decay * p;
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    const double m_hat = m / (1 - std::pow(b1, static_cast<double>(t)));
    const double v_hat = v / (1 - std::pow(b2, static_cast<double>(t)));
    p -= lr * m_hat / (std::sqrt(v_hat) + eps);
  }
};

class Threads {
 public:
  explicit Threads(int n) : before_(at::get_num_threads()) { at::set_num_threads(n); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace

TEST_CASE("optimizer/adamw names its states as PyTorch does") {
  const auto optimizer = load_plugin<zerolab::Optimizer>("optimizer/adamw");
  CHECK(optimizer->state_names() == std::vector<std::string>{"exp_avg", "exp_avg_sq"});
}

TEST_CASE("optimizer/adamw gives the same bits wherever a range is cut") {
  for (int threads : {1, 2}) {
    const Threads scope(threads);
    // Small, and large enough for the kernel to use its threads.
    for (int64_t n : {16 * 37, 16 * 2003}) {
      const int64_t plain = 16 * 20;
      const Flat whole = updated(n, {0, plain, n}, plain);
      const int64_t stride = n < 1000 ? kRangeAlignment : kRangeAlignment * 143;
      for (int64_t cut = stride; cut < n; cut += stride) {
        CAPTURE(threads, n, cut);
        std::vector<int64_t> cuts = {0, plain, cut, n};
        std::sort(cuts.begin(), cuts.end());
        REQUIRE(updated(n, cuts, plain).same_bits(whole));
      }
      std::vector<int64_t> all;
      for (int64_t cut = 0; cut < n; cut += kRangeAlignment) all.push_back(cut);
      all.push_back(n);
      CHECK(updated(n, all, plain).same_bits(whole));
    }
  }
}

TEST_CASE("optimizer/adamw gives the same bits with one thread and with two") {
  const int64_t n = 16 * 5003;
  const Threads one(1);
  const Flat a = updated(n, {0, n}, n);
  const Threads two(2);
  CHECK(updated(n, {0, n}, n).same_bits(a));
}

TEST_CASE("optimizer/adamw follows the formula in double precision") {
  const int64_t n = 64;
  const double lr = 3e-3, b1 = 0.9, b2 = 0.95, eps = 1e-8, decay = 0.1, multiplier = 0.25;
  const auto optimizer = load_plugin<zerolab::Optimizer>("optimizer/adamw", options());
  Flat flat(n);
  std::vector<Scalar> expected;
  for (int64_t i = 0; i < n; ++i) expected.push_back({flat.parameters[i].item<double>()});
  for (int64_t step = 1; step <= 50; ++step) {
    const double factor = std::cos(static_cast<double>(step));
    std::vector<zerolab::OptimizerRange> ranges = {flat.range(0, 32, true, factor),
                                                   flat.range(32, n, false, factor)};
    optimizer->update(ranges, {.lr = lr, .step = step, .gradient_multiplier = multiplier});
    for (int64_t i = 0; i < n; ++i) {
      const double g = flat.gradients[i].item<double>() * factor * multiplier;
      expected[static_cast<size_t>(i)].update(g, lr, b1, b2, eps, i < 32 ? decay : 0, step);
    }
  }
  // Float32 rounding over 50 updates of about lr each: some units in the last place of p, and of
  // the states.
  for (int64_t i = 0; i < n; ++i) {
    const Scalar& e = expected[static_cast<size_t>(i)];
    CHECK(std::abs(flat.parameters[i].item<double>() - e.p) < 2e-6 * std::max(1.0, std::abs(e.p)));
    CHECK(flat.average[i].item<double>() == Approx(e.m).epsilon(1e-4).margin(1e-6));
    CHECK(flat.square[i].item<double>() == Approx(e.v).epsilon(1e-5));
  }
}

TEST_CASE("optimizer/adamw moves by lr at the first update, whatever the size of the gradient") {
  const auto optimizer = load_plugin<zerolab::Optimizer>("optimizer/adamw", options());
  for (double size : {1e-4, 1.0, 1e4}) {
    Flat flat(16);
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
  const auto optimizer = load_plugin<zerolab::Optimizer>("optimizer/adamw", options());
  Flat flat(32);
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

TEST_CASE("optimizer/adamw keeps zero elements at zero: padding stays padding") {
  const auto optimizer = load_plugin<zerolab::Optimizer>("optimizer/adamw", options());
  Flat flat(16);
  flat.parameters.zero_();
  for (int64_t step = 1; step <= 3; ++step) {
    std::vector<zerolab::OptimizerRange> ranges = {flat.range(0, 16, true, 0)};
    optimizer->update(ranges, {.lr = 0.1, .step = step});
  }
  CHECK(flat.same_bits([] {
    Flat zero(16);
    zero.parameters.zero_();
    return zero;
  }()));
}

TEST_CASE("optimizer/adamw takes no ranges and empty ranges") {
  const auto optimizer = load_plugin<zerolab::Optimizer>("optimizer/adamw");
  CHECK_NOTHROW(optimizer->update({}, {.lr = 0.1, .step = 1}));
  Flat flat(16);
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
