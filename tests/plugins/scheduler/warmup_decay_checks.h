#pragma once
// What the tests of schedulers that warm up and then decay share (zerolab/warmup_decay.h): all but
// the shape of the decay.

#include <memory>
#include <string>
#include <vector>

#include "zerolab/error.h"
#include "zerolab/scheduler.h"

#include "catch.h"
#include "load_plugin.h"

namespace warmup_decay_test {

inline std::unique_ptr<zerolab::Scheduler> schedule(const std::string& id, double lr, double min_lr,
                                                    int64_t warmup, int64_t num_steps,
                                                    int64_t decay_steps = 0) {
  auto scheduler = load_plugin<zerolab::Scheduler>(
      id, {{"lr", lr}, {"min_lr", min_lr}, {"warmup_steps", warmup}, {"decay_steps", decay_steps}});
  scheduler->open({.num_steps = num_steps});
  return scheduler;
}

/// The warmup ends at lr, the decay at min_lr, and nothing after the warmup rises.
inline void check_end_points(const std::string& id) {
  for (int64_t num_steps : {2, 3, 10, 99, 1000, 2001}) {
    for (int64_t warmup : {0, 1, 2, 7, 98}) {
      if (warmup >= num_steps - 1) continue;
      for (double lr : {1e-4, 3e-4, 0.1, 1.0 / 3}) {
        for (double share : {0.0, 0.1, 1.0 / 3, 1.0}) {
          const double min_lr = lr * share;
          CAPTURE(num_steps, warmup, lr, min_lr);
          const auto s = schedule(id, lr, min_lr, warmup, num_steps);
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

/// decay_steps before the run's end: min_lr is reached there and held.
inline void check_decay_steps(const std::string& id) {
  const auto s = schedule(id, 1e-3, 1e-5, 10, 1000, 500);
  CHECK(s->lr(498) > 1e-5);
  for (int64_t step : {499, 500, 999, 5000}) CHECK(s->lr(step) == 1e-5);
}

/// A decay of one step, right behind the warmup: min_lr after it.
inline void check_one_step_of_decay(const std::string& id) {
  const auto s = schedule(id, 1e-3, 1e-5, 9, 100, 10);
  CHECK(s->lr(8) == 1e-3);
  CHECK(s->lr(9) == 1e-3);  // the warmup's end and the decay's: lr, as where a run ends there
  for (int64_t step : {10, 11, 99, 5000}) CHECK(s->lr(step) == 1e-5);
}

/// A decay that outlasts the run: the run's last value stays.
inline void check_longer_than_the_run(const std::string& id) {
  const auto s = schedule(id, 1e-3, 0, 0, 100, 1000);
  CHECK(s->lr(99) > 9e-4);
  CHECK(s->lr(100) == s->lr(99));
  CHECK(s->lr(999) == s->lr(99));
}

/// Nothing left for the decay: lr.
inline void check_no_decay(const std::string& id) {
  CHECK(schedule(id, 0.5, 0, 0, 1)->lr(0) == 0.5);
  const auto s = schedule(id, 0.5, 0, 3, 4);
  CHECK(s->lr(3) == 0.5);
  CHECK(s->lr(4) == 0.5);
}

/// A warmup as long as the run is refused with both numbers.
inline void check_warmup_too_long(const std::string& id) {
  for (int64_t warmup : {10, 11, 1000}) {
    try {
      schedule(id, 1e-3, 0, warmup, 10);
      FAIL("no error for warmup " << warmup);
    } catch (const zerolab::ConfigError& error) {
      const std::string message = error.what();
      CHECK(message.find("warmup_steps is " + std::to_string(warmup)) != std::string::npos);
      CHECK(message.find("10 steps") != std::string::npos);
    }
  }
  CHECK_NOTHROW(schedule(id, 1e-3, 0, 9, 10));
}

/// Options that contradict each other are refused.
inline void check_options(const std::string& id) {
  using V = zerolab::OptionValues;
  CHECK(option_problems(id, V{{"lr", 1e-3}, {"min_lr", 1e-3}}).empty());
  CHECK(option_problems(id, V{{"lr", 1e-3}, {"min_lr", 2e-3}}) ==
        std::vector<std::string>{"min_lr: must not exceed lr (0.001), is 0.002"});
  CHECK(option_problems(id, V{{"warmup_steps", int64_t{50}}, {"decay_steps", int64_t{50}}}) ==
        std::vector<std::string>{
            "decay_steps: counts the warmup too and must exceed warmup_steps (50), or be 0"});
  CHECK(
      option_problems(id, V{{"warmup_steps", int64_t{50}}, {"decay_steps", int64_t{51}}}).empty());
  CHECK_FALSE(option_problems(id, V{{"min_lr", -1e-6}}).empty());
}

/// `share` of the decay is left where it has progressed from 0 to 1; half of it in the middle.
inline void check_closed_form(const std::string& id, double (*share)(double progress)) {
  const double lr = 1e-3, min_lr = 1e-4;
  const auto s = schedule(id, lr, min_lr, 100, 2000);
  for (int64_t step = 0; step < 100; ++step) {
    REQUIRE(s->lr(step) == Approx(lr * static_cast<double>(step + 1) / 100).epsilon(1e-14));
  }
  for (int64_t step = 100; step < 2000; ++step) {
    const double progress = static_cast<double>(step - 100) / (1999 - 100);
    REQUIRE(s->lr(step) == Approx(min_lr + (lr - min_lr) * share(progress)).epsilon(1e-12));
  }
  // Half way down at the middle: steps 100 and 1100 of a decay that ends at 2100.
  CHECK(schedule(id, 1.0, 0.5, 100, 2101)->lr(1100) == Approx(0.75).epsilon(1e-14));
}

}  // namespace warmup_decay_test
