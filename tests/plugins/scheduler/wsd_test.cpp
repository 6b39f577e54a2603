#include <cmath>
#include <limits>
#include <numbers>

#include "zerolab/error.h"
#include "zerolab/scheduler.h"

#include "catch.h"
#include "load_plugin.h"

namespace {

const char* const kShapes[] = {"linear", "cosine", "one_minus_sqrt"};

struct Given {
  double lr = 1e-3, min_lr = 1e-4;
  int64_t warmup = 10;
  double fraction = 0.2;
  std::string shape = "linear";
  int64_t num_steps = 100;
};

std::unique_ptr<zerolab::Scheduler> wsd(const Given& given) {
  auto scheduler =
      load_plugin<zerolab::Scheduler>("scheduler/wsd", {{"lr", given.lr},
                                                        {"min_lr", given.min_lr},
                                                        {"warmup_steps", given.warmup},
                                                        {"decay_fraction", given.fraction},
                                                        {"decay_shape", given.shape}});
  scheduler->open({.num_steps = given.num_steps});
  return scheduler;
}

}  // namespace

TEST_CASE("scheduler/wsd has exact end points: of the warmup, of the stable part, of the decay") {
  for (const char* shape : kShapes) {
    for (const int64_t num_steps : {10, 99, 1000, 2001}) {
      for (const double fraction : {0.1, 0.2, 1.0 / 3, 0.9}) {
        for (const double lr : {3e-4, 0.1, 1.0 / 3}) {
          const int64_t decay = std::llround(fraction * static_cast<double>(num_steps));
          const int64_t warmup = (num_steps - decay) / 2, last = num_steps - 1;
          CAPTURE(shape, num_steps, fraction, lr);
          const auto s = wsd({lr, lr / 3, warmup, fraction, shape, num_steps});
          if (warmup > 0) {
            CHECK(s->lr(0) == lr * (1 / static_cast<double>(warmup)));
            CHECK(s->lr(warmup - 1) == lr);
          }
          int64_t stable = 0, rises = 0, out_of_range = 0;
          for (int64_t step = warmup; step < num_steps; ++step) {
            stable += s->lr(step) == lr ? 1 : 0;
            rises += s->lr(step + 1) > s->lr(step) ? 1 : 0;
            out_of_range += s->lr(step) < lr / 3 || s->lr(step) > lr ? 1 : 0;
          }
          CHECK(stable == num_steps - warmup - decay);
          CHECK(rises == 0);
          CHECK(out_of_range == 0);
          CHECK(s->lr(last - decay) == lr);
          CHECK(s->lr(last) == lr / 3);
          CHECK(s->lr(last + 12345) == lr / 3);
        }
      }
    }
  }
}

TEST_CASE("scheduler/wsd decays along the shape that is chosen") {
  // Steps 79 to 99 of 100: x goes from 0 to 1 in 20 steps.
  for (int64_t step = 79; step < 100; ++step) {
    const double x = static_cast<double>(step - 79) / 20;
    const auto at = [&](const char* shape) {
      return wsd({1.0, 0.2, 10, 0.2, shape, 100})->lr(step);
    };
    CHECK(at("linear") == Approx(0.2 + 0.8 * (1 - x)).epsilon(1e-13));
    CHECK(at("cosine") == Approx(0.2 + 0.4 * (1 + std::cos(std::numbers::pi * x))).epsilon(1e-13));
    CHECK(at("one_minus_sqrt") == Approx(0.2 + 0.8 * (1 - std::sqrt(x))).epsilon(1e-13));
  }
}

TEST_CASE("scheduler/wsd may do without warmup, without decay, and without a stable part") {
  const auto flat = wsd({.warmup = 0, .fraction = 0});
  for (const int64_t step : {0, 50, 99, 100}) CHECK(flat->lr(step) == 1e-3);
  const auto triangle = wsd({.warmup = 80, .fraction = 0.2});
  CHECK(triangle->lr(79) == 1e-3);
  CHECK(triangle->lr(80) < 1e-3);
  CHECK(triangle->lr(99) == 1e-4);
  const auto falling = wsd({.lr = 1, .min_lr = 0, .warmup = 0, .fraction = 1});
  CHECK(falling->lr(0) == Approx(0.99).epsilon(1e-14));
  CHECK(falling->lr(99) == 0);
}

TEST_CASE("scheduler/wsd refuses a run too short for warmup and decay and says the numbers") {
  try {
    wsd({.warmup = 81, .fraction = 0.2});
    FAIL("no error");
  } catch (const zerolab::ConfigError& error) {
    const std::string message = error.what();
    for (const char* part : {"warmup_steps is 81", "20 steps of decay", "100 steps"}) {
      CHECK(message.find(part) != std::string::npos);
    }
  }
}

TEST_CASE("scheduler/wsd refuses a warmup of any length that does not fit, the largest included") {
  for (const int64_t warmup :
       {int64_t{81}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
    CAPTURE(warmup);
    CHECK_THROWS_AS(wsd({.warmup = warmup, .fraction = 0.2}), zerolab::ConfigError);
  }
}

TEST_CASE("scheduler/wsd refuses options that contradict each other") {
  using V = zerolab::OptionValues;
  CHECK(option_problems("scheduler/wsd", V{{"lr", 1e-3}, {"min_lr", 2e-3}}) ==
        std::vector<std::string>{"min_lr: must not exceed lr (0.001), is 0.002"});
  CHECK_FALSE(option_problems("scheduler/wsd", V{{"decay_fraction", 1.1}}).empty());
  CHECK_FALSE(option_problems("scheduler/wsd", V{{"decay_shape", std::string("steps")}}).empty());
}
