#include <cmath>
#include <numbers>

#include "zerolab/error.h"
#include "zerolab/scheduler.h"

#include "catch.h"
#include "load_plugin.h"

namespace {

std::unique_ptr<zerolab::Scheduler> cosine(double lr, double min_lr, int64_t warmup,
                                           int64_t num_steps, int64_t decay_steps = 0) {
  auto scheduler = load_plugin<zerolab::Scheduler>(
      "scheduler/cosine",
      {{"lr", lr}, {"min_lr", min_lr}, {"warmup_steps", warmup}, {"decay_steps", decay_steps}});
  scheduler->open({.num_steps = num_steps});
  return scheduler;
}

}  // namespace

TEST_CASE("scheduler/cosine has exact end points and never rises after the warmup") {
  for (int64_t num_steps : {2, 3, 10, 99, 1000, 2001}) {
    for (int64_t warmup : {0, 1, 2, 7, 98}) {
      if (warmup >= num_steps - 1) continue;
      for (double lr : {1e-4, 3e-4, 0.1, 1.0 / 3}) {
        for (double share : {0.0, 0.1, 1.0 / 3, 1.0}) {
          const double min_lr = lr * share;
          CAPTURE(num_steps, warmup, lr, min_lr);
          const auto s = cosine(lr, min_lr, warmup, num_steps);
          if (warmup > 0) {
            CHECK(s->lr(0) == lr * (1 / static_cast<double>(warmup)));
            CHECK(s->lr(warmup - 1) == lr);
          }
          CHECK(s->lr(warmup) == lr);
          CHECK(s->lr(num_steps - 1) == min_lr);
          CHECK(s->lr(num_steps + 12345) == min_lr);
          int64_t rises = 0, out_of_range = 0;
          for (int64_t step = warmup; step < num_steps; ++step) {
            rises += s->lr(step + 1) > s->lr(step) ? 1 : 0;
            out_of_range += s->lr(step) < min_lr || s->lr(step) > lr ? 1 : 0;
          }
          CHECK(rises == 0);
          CHECK(out_of_range == 0);
        }
      }
    }
  }
}

TEST_CASE("scheduler/cosine follows the closed form between its end points") {
  const double lr = 1e-3, min_lr = 1e-4;
  const auto s = cosine(lr, min_lr, 100, 2000);
  for (int64_t step = 0; step < 100; ++step) {
    REQUIRE(s->lr(step) == Approx(lr * static_cast<double>(step + 1) / 100).epsilon(1e-14));
  }
  for (int64_t step = 100; step < 2000; ++step) {
    const double progress = static_cast<double>(step - 100) / (1999 - 100);
    const double expected =
        min_lr + 0.5 * (lr - min_lr) * (1 + std::cos(std::numbers::pi * progress));
    REQUIRE(s->lr(step) == Approx(expected).epsilon(1e-12));
  }
  // Half way down at the middle: steps 100 and 1100 of a decay that ends at 2100.
  const auto middle = cosine(1.0, 0.5, 100, 2101);
  CHECK(middle->lr(1100) == Approx(0.75).epsilon(1e-14));
}

TEST_CASE("scheduler/cosine with decay_steps reaches min_lr there and holds it") {
  const auto s = cosine(1e-3, 1e-5, 10, 1000, 500);
  CHECK(s->lr(498) > 1e-5);
  for (int64_t step : {499, 500, 999, 5000}) CHECK(s->lr(step) == 1e-5);
}

TEST_CASE("scheduler/cosine holds min_lr after a decay of one step, right behind the warmup") {
  const auto s = cosine(1e-3, 1e-5, 9, 100, 10);
  CHECK(s->lr(8) == 1e-3);
  CHECK(s->lr(9) == 1e-3);  // the warmup's end and the decay's: lr, as where a run ends there
  for (int64_t step : {10, 11, 99, 5000}) CHECK(s->lr(step) == 1e-5);
}

TEST_CASE("scheduler/cosine that outlasts the run keeps the last value of the run") {
  const auto s = cosine(1e-3, 0, 0, 100, 1000);
  CHECK(s->lr(99) > 9e-4);
  CHECK(s->lr(100) == s->lr(99));
  CHECK(s->lr(999) == s->lr(99));
}

TEST_CASE("scheduler/cosine trains at lr when nothing is left for the decay") {
  CHECK(cosine(0.5, 0, 0, 1)->lr(0) == 0.5);
  const auto s = cosine(0.5, 0, 3, 4);
  CHECK(s->lr(3) == 0.5);
  CHECK(s->lr(4) == 0.5);
}

TEST_CASE("scheduler/cosine refuses a warmup as long as the run and says both numbers") {
  for (int64_t warmup : {10, 11, 1000}) {
    try {
      cosine(1e-3, 0, warmup, 10);
      FAIL("no error for warmup " << warmup);
    } catch (const zerolab::ConfigError& error) {
      const std::string message = error.what();
      CHECK(message.find("warmup_steps is " + std::to_string(warmup)) != std::string::npos);
      CHECK(message.find("10 steps") != std::string::npos);
    }
  }
  CHECK_NOTHROW(cosine(1e-3, 0, 9, 10));
}

TEST_CASE("scheduler/cosine refuses options that contradict each other") {
  using V = zerolab::OptionValues;
  CHECK(option_problems("scheduler/cosine", V{{"lr", 1e-3}, {"min_lr", 1e-3}}).empty());
  CHECK(option_problems("scheduler/cosine", V{{"lr", 1e-3}, {"min_lr", 2e-3}}) ==
        std::vector<std::string>{"min_lr: must not exceed lr"});
  CHECK_FALSE(option_problems("scheduler/cosine",
                              V{{"warmup_steps", int64_t{50}}, {"decay_steps", int64_t{50}}})
                  .empty());
  CHECK(option_problems("scheduler/cosine",
                        V{{"warmup_steps", int64_t{50}}, {"decay_steps", int64_t{51}}})
            .empty());
  CHECK_FALSE(option_problems("scheduler/cosine", V{{"min_lr", -1e-6}}).empty());
}
