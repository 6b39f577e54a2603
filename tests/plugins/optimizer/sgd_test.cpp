#include "optimizer_fixture.h"

namespace {

using optimizer_test::Flat;
using optimizer_test::Subject;

const Subject kPlain = {"optimizer/sgd", {{"weight_decay", 0.1}}};
const Subject kDampened = {"optimizer/sgd",
                           {{"momentum", 0.9}, {"dampening", 0.3}, {"weight_decay", 0.1}}};
const Subject kNesterov = {"optimizer/sgd",
                           {{"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.1}}};

/// One element in double precision, as PyTorch's torch.optim.SGD documents it.
struct Scalar {
  double momentum, dampening;
  bool nesterov;
  double p, m = 0;
  void update(double g, double lr, bool decay, int64_t t) {
    if (decay) g += 0.1 * p;
    m = t == 1 ? g : momentum * m + (1 - dampening) * g;
    if (momentum == 0) m = g;
    p -= lr * (nesterov ? g + momentum * m : m);
  }
};

}  // namespace

TEST_CASE("optimizer/sgd keeps a momentum as PyTorch names it, and nothing without momentum") {
  CHECK(kPlain.make()->state_names().empty());
  CHECK(kDampened.make()->state_names() == std::vector<std::string>{"momentum_buffer"});
}

TEST_CASE("optimizer/sgd gives the same bits wherever a range is cut and with two threads") {
  optimizer_test::check_cuts(kPlain);
  optimizer_test::check_cuts(kDampened);
  optimizer_test::check_cuts(kNesterov);
}

TEST_CASE("optimizer/sgd follows the formula in double precision") {
  optimizer_test::check_formula<Scalar>(
      kPlain,
      [](double p) {
        return Scalar{0, 0, false, p};
      },
      50, 1e-6);
  optimizer_test::check_formula<Scalar>(
      kDampened,
      [](double p) {
        return Scalar{0.9, 0.3, false, p};
      },
      50, 1e-6);
  optimizer_test::check_formula<Scalar>(
      kNesterov,
      [](double p) {
        return Scalar{0.9, 0, true, p};
      },
      50, 1e-6);
}

TEST_CASE("optimizer/sgd does not dampen its first gradient") {
  const auto optimizer = kDampened.make();
  Flat flat = kDampened.flat(16);
  std::vector<zerolab::OptimizerRange> ranges = {flat.range(0, 16, false)};
  optimizer->update(ranges, {.lr = 0.1, .step = 1});
  CHECK(at::equal(flat.states[0], flat.gradients));
}

TEST_CASE("optimizer/sgd keeps zero elements at zero") {
  optimizer_test::check_padding(kPlain);
  optimizer_test::check_padding(kNesterov);
}

TEST_CASE(
    "optimizer/sgd refuses nesterov without momentum or with dampening, and dampening of none") {
  using V = zerolab::OptionValues;
  CHECK(option_problems("optimizer/sgd", V{{"nesterov", true}}) ==
        std::vector<std::string>{"nesterov: needs a momentum above 0"});
  CHECK(option_problems("optimizer/sgd",
                        V{{"nesterov", true}, {"momentum", 0.9}, {"dampening", 0.1}}) ==
        std::vector<std::string>{"nesterov: needs a dampening of 0"});
  CHECK(option_problems("optimizer/sgd", V{{"nesterov", true}, {"momentum", 0.9}}).empty());
  CHECK(option_problems("optimizer/sgd", V{{"dampening", 0.1}}) ==
        std::vector<std::string>{"dampening: needs a momentum above 0"});
  CHECK_FALSE(option_problems("optimizer/sgd", V{{"momentum", 1.0}}).empty());
}
