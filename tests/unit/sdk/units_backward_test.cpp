// Units in training: what a listener hears as backward goes through them, what autograd keeps, and
// recomputation.

#include <cstring>
#include <memory>

#include <ATen/autocast_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>

#include "zerolab/error.h"
#include "zerolab/units.h"

#include "catch.h"

namespace {

struct Listener : zerolab::UnitListener {
  std::vector<std::string> calls;
  void say(const char* what, int unit) { calls.push_back(what + std::to_string(unit)); }
  void begin_pass(bool training) override { say("pass ", training ? 1 : 0); }
  void before_forward(int unit) override { say(">f", unit); }
  void after_forward(int unit) override { say("f<", unit); }
  void before_backward(int unit) override { say(">b", unit); }
  void after_backward(int unit) override { say("b<", unit); }
  void end_pass() override { say("end ", 0); }
};

/// Two layers with their own weight each, and one weight that both read twice.
struct Layers {
  at::Tensor first = at::randn({8, 8}).mul_(0.3).set_requires_grad(true);
  at::Tensor second = at::randn({8, 8}).mul_(0.3).set_requires_grad(true);
  at::Tensor shared = at::randn({8, 8}).mul_(0.3).set_requires_grad(true);
  at::Tensor frozen = at::randn({8, 8}).mul_(0.3);
  int runs = 0;

  at::Tensor layer(const at::Tensor& own, const at::Tensor& x, zerolab::UnitScope& scope) {
    ++runs;
    const at::Tensor h = at::linear(at::linear(at::gelu(at::linear(x, own)), shared), frozen);
    return x.add(scope.dropout(at::linear(h, shared), 0.3));
  }
  /// Gradients of first, second, shared and, last, of x.
  std::vector<at::Tensor> gradients(zerolab::Units& units, const at::Tensor& input) {
    at::Tensor x = input.detach().set_requires_grad(true);
    units.begin(true, 5);
    at::Tensor y = units.run(1, {x.mul(1)}, [this](at::TensorList in, zerolab::UnitScope& scope) {
      return layer(first, in[0], scope);
    });
    y = units.run(2, {y}, [this](at::TensorList in, zerolab::UnitScope& scope) {
      return layer(second, in[0], scope);
    });
    y.square().sum().backward();
    units.end();
    std::vector<at::Tensor> result;
    for (at::Tensor* t : {&first, &second, &shared, &x}) {
      result.push_back(t->grad());
      t->mutable_grad().reset();
    }
    return result;
  }
};

/// Autocast as the trainer sets it.
struct Bf16Scope {
  Bf16Scope() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~Bf16Scope() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_cache_enabled(true);
  }
};

}  // namespace

TEST_CASE("backward leaves a unit before it enters the one before") {
  Layers layers;
  zerolab::Units units;
  Listener listener;
  units.set_listener(&listener);
  layers.gradients(units, at::randn({3, 8}));
  CHECK(listener.calls == std::vector<std::string>{"pass 1", ">f1", "f<1", ">f2", "f<2", ">b2",
                                                   "b<2", ">b1", "b<1", "end 0"});
}

TEST_CASE(
    "a unit whose inputs need no gradient is entered but not left; the root hears no backward") {
  Layers layers;
  zerolab::Units units;
  Listener listener;
  units.set_listener(&listener);
  units.begin(true, 1);
  const at::Tensor x = at::randn({3, 8});
  const at::Tensor y = units.run(1, {x}, [&](at::TensorList in, zerolab::UnitScope&) {
    return at::linear(in[0], layers.first);
  });
  units.run(0, {y}, [](at::TensorList in, zerolab::UnitScope&) { return in[0].sum(); }).backward();
  units.end();
  CHECK(listener.calls ==
        std::vector<std::string>{"pass 1", ">f1", "f<1", ">f0", "f<0", ">b1", "end 0"});
}

TEST_CASE("with activation checkpointing gradients keep every bit, dropout and autocast included") {
  for (const bool autocast : {false, true}) {
    Layers layers;
    const at::Tensor x = at::randn({3, 8});
    zerolab::Units plain, again;
    again.set_activation_checkpointing(true);
    const auto run = [&](zerolab::Units& units) {
      const auto scope = autocast ? std::make_unique<Bf16Scope>() : nullptr;
      return layers.gradients(units, x);
    };
    const auto expected = run(plain);
    CHECK(layers.runs == 2);
    const auto got = run(again);
    CHECK(layers.runs == 2 + 4);
    for (size_t i = 0; i < expected.size(); ++i) CHECK(at::equal(expected[i], got[i]));
  }
}

TEST_CASE("what a checkpointed unit computes is freed with its forward") {
  zerolab::Units units;
  units.set_activation_checkpointing(true);
  units.begin(true, 1);
  c10::weak_intrusive_ptr<c10::TensorImpl> inside{at::randn({1}).getIntrusivePtr()};
  const at::Tensor x = at::randn({4}).set_requires_grad(true);
  const at::Tensor y = units.run(1, {x}, [&](at::TensorList in, zerolab::UnitScope&) {
    const at::Tensor hidden = in[0].exp();
    inside = c10::weak_intrusive_ptr<c10::TensorImpl>(hidden.getIntrusivePtr());
    return hidden.mul(hidden);
  });
  CHECK(inside.expired());
  y.sum().backward();
  CHECK(x.grad().allclose(x.detach().mul(2).exp().mul(2)));
}

TEST_CASE("a recomputation that is not what the forward was is an error") {
  zerolab::Units units;
  units.set_activation_checkpointing(true);
  units.begin(true, 1);
  int runs = 0;
  const at::Tensor x = at::randn({4}).set_requires_grad(true);
  const at::Tensor y = units.run(1, {x}, [&](at::TensorList in, zerolab::UnitScope&) {
    return ++runs == 1 ? in[0].exp().mul(in[0]) : in[0].exp();
  });
  CHECK_THROWS_WITH(y.sum().backward(), Catch::Matchers::Contains("when it was recomputed"));
}

TEST_CASE("under autocast the low-precision copies of weights do not outlive their use") {
  // The gradients are those that kept copies would give.
  Layers layers;
  const at::Tensor x = at::randn({3, 8});
  zerolab::Units units;
  const Bf16Scope scope;
  at::Tensor input = x.detach().set_requires_grad(true);
  const at::Tensor outside = at::linear(at::linear(input, layers.first), layers.second);
  outside.sum().backward();
  const at::Tensor expected = layers.first.grad(), expected_input = input.grad();
  layers.first.mutable_grad().reset();
  units.begin(true, 1);
  at::Tensor again = x.detach().set_requires_grad(true);
  const at::Tensor inside = units.run(1, {again}, [&](at::TensorList in, zerolab::UnitScope&) {
    return at::linear(at::linear(in[0], layers.first), layers.second);
  });
  // A copy that was kept would still hold the values of before.
  std::memset(layers.second.data_ptr(), 0, layers.second.nbytes());
  inside.sum().backward();
  CHECK_FALSE(at::equal(again.grad(), expected_input));
  CHECK(again.grad().abs().sum().item<float>() == 0);
  CHECK(layers.first.grad().sizes() == expected.sizes());
}

TEST_CASE("an output that is changed in place, or goes away, does not confuse the units") {
  const at::Tensor w = at::randn({8, 8}).set_requires_grad(true);
  zerolab::Units units;
  Listener listener;
  units.set_listener(&listener);
  units.begin(true, 1);
  const auto layer = [&](at::TensorList in, zerolab::UnitScope&) { return at::linear(in[0], w); };
  at::Tensor x = units.run(1, {at::randn({3, 8})}, layer);
  x.add_(1);
  x = units.run(2, {x}, layer);
  x = x.mul(2).add(1);
  x = units.run(3, {x.mul(3)}, layer);
  x.sum().backward();
  units.end();
  CHECK(listener.calls == std::vector<std::string>{"pass 1", ">f1", "f<1", ">f2", "f<2", ">f3",
                                                   "f<3", ">b3", "b<3", ">b2", "b<2", ">b1",
                                                   "end 0"});
}

TEST_CASE("writing in place to what backward needs is an error under autocast, too") {
  zerolab::Units units;
  const Bf16Scope scope;
  units.begin(true, 1);
  const at::Tensor x = at::randn({4}).set_requires_grad(true);
  const at::Tensor y = units.run(1, {x}, [](at::TensorList in, zerolab::UnitScope&) {
    const at::Tensor h = in[0].exp();
    return h.add_(1).mul(2);
  });
  CHECK_THROWS_WITH(y.sum().backward(), Catch::Matchers::Contains("writes in place"));
}

TEST_CASE("a checkpointed unit whose input was changed since is an error") {
  zerolab::Units units;
  units.set_activation_checkpointing(true);
  units.begin(true, 1);
  const at::Tensor w = at::randn({4}).set_requires_grad(true), x = at::randn({4});
  const at::Tensor y =
      units.run(1, {x}, [&](at::TensorList in, zerolab::UnitScope&) { return in[0].exp().mul(w); });
  x.add_(1);
  CHECK_THROWS_WITH(y.sum().backward(), Catch::Matchers::Contains("writes in place"));
}
