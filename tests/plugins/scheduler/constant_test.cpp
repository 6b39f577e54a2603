#include "zerolab/scheduler.h"

#include "catch.h"
#include "load_plugin.h"

TEST_CASE("scheduler/constant without warmup is lr at every step") {
  const auto scheduler = load_plugin<zerolab::Scheduler>("scheduler/constant", {{"lr", 0.0125}});
  scheduler->open({.num_steps = 10});
  for (int64_t step : {0, 1, 5, 9, 10, 1000000}) CHECK(scheduler->lr(step) == 0.0125);
}

TEST_CASE("scheduler/constant warms up linearly and reaches lr exactly at the last warmup step") {
  for (int64_t warmup : {1, 2, 3, 7, 10, 49, 100, 1000}) {
    for (double lr : {1e-4, 3e-4, 0.1, 1.0 / 3}) {
      CAPTURE(warmup, lr);
      const auto scheduler = load_plugin<zerolab::Scheduler>(
          "scheduler/constant", {{"lr", lr}, {"warmup_steps", warmup}});
      scheduler->open({.num_steps = 2 * warmup});
      CHECK(scheduler->lr(0) == Approx(lr / static_cast<double>(warmup)).epsilon(1e-15));
      for (int64_t step = 1; step < warmup; ++step) {
        REQUIRE(scheduler->lr(step) > scheduler->lr(step - 1));
      }
      CHECK(scheduler->lr(warmup - 1) == lr);
      CHECK(scheduler->lr(warmup) == lr);
      CHECK(scheduler->lr(2 * warmup) == lr);
    }
  }
}

TEST_CASE("scheduler/constant takes a warmup that is longer than the run") {
  const auto scheduler = load_plugin<zerolab::Scheduler>(
      "scheduler/constant", {{"lr", 1.0}, {"warmup_steps", int64_t{8}}});
  CHECK_NOTHROW(scheduler->open({.num_steps = 4}));
  CHECK(scheduler->lr(3) == 0.5);
}

TEST_CASE("scheduler/constant refuses a learning rate of zero and a negative warmup") {
  CHECK_FALSE(option_problems("scheduler/constant", {{"lr", 0.0}}).empty());
  CHECK_FALSE(option_problems("scheduler/constant", {{"warmup_steps", int64_t{-1}}}).empty());
  CHECK(
      option_problems("scheduler/constant", {{"lr", 1e-9}, {"warmup_steps", int64_t{0}}}).empty());
}
