#include "zerolab/units.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include "catch.h"

namespace {

at::Tensor dropped(zerolab::Units& units, int unit, double probability = 0.5) {
  const at::Tensor x = at::ones({1000});
  return units.run(unit, {x}, [&](at::TensorList in, zerolab::UnitScope& scope) {
    return scope.dropout(in[0], probability);
  });
}

struct Listener : zerolab::UnitListener {
  std::vector<int> calls;
  void before_forward(int unit) override { calls.push_back(unit); }
  void after_forward(int unit) override { calls.push_back(-unit); }
};

}  // namespace

TEST_CASE("dropout depends on the key and on the run, and on nothing else") {
  zerolab::Units units;
  units.begin(true, 9);
  const at::Tensor first = dropped(units, 1), second = dropped(units, 1);
  CHECK_FALSE(at::equal(first, second));
  units.begin(true, 9);
  CHECK(at::equal(dropped(units, 1), first));
  CHECK(at::equal(dropped(units, 1), second));
  units.begin(true, 10);
  CHECK_FALSE(at::equal(dropped(units, 1), first));
}

TEST_CASE("dropout keeps the mean and drops the stated part") {
  zerolab::Units units;
  units.begin(true, 1);
  const at::Tensor y = dropped(units, 1, 0.25);
  // Statistical: 750 of 1000 expected, standard deviation 14.
  const auto kept = y.count_nonzero().item<int64_t>();
  CHECK(kept > 680);
  CHECK(kept < 820);
  CHECK(y.max().item<float>() == Approx(1 / 0.75));
}

TEST_CASE("there is no dropout in evaluation") {
  zerolab::Units units;
  units.begin(false, 1);
  CHECK(at::equal(dropped(units, 1), at::ones({1000})));
}

TEST_CASE("a listener is told before and after each unit") {
  zerolab::Units units;
  Listener listener;
  units.set_listener(&listener);
  units.begin(true, 1);
  dropped(units, 2);
  dropped(units, 3);
  CHECK(listener.calls == std::vector<int>{2, -2, 3, -3});
}
