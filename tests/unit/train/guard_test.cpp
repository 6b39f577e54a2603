#include "train/guard.h"

#include <limits>

#include "catch.h"

using zerolab::Guard;
using zerolab::GuardAction;
using zerolab::GuardConfig;
using zerolab::GuardVerdict;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

GuardConfig config(const std::string& non_finite, const std::string& spike = "off") {
  GuardConfig config;
  config.non_finite = non_finite;
  config.spike = spike;
  config.window = 4;
  config.z_score = 3;
  config.max_skips = 3;
  return config;
}

/// A guard whose window is full: mean 2, standard deviation 0.1.
Guard watchful(const std::string& spike, int64_t max_skips = 3) {
  GuardConfig of = config("skip", spike);
  of.max_skips = max_skips;
  Guard guard(of);
  for (const double loss : {1.9, 2.1, 1.9292893218813454, 2.0707106781186546}) {
    CHECK(guard.judge(loss, true, false).action == GuardAction::kNone);
  }
  return guard;
}

GuardAction action(const std::string& word) {
  if (word == "skip") return GuardAction::kSkip;
  return word == "stop" ? GuardAction::kStop : GuardAction::kRollback;
}

}  // namespace

TEST_CASE("a loss or a gradient that is not finite asks for what the configuration says") {
  for (const std::string word : {"skip", "stop", "rollback"}) {
    for (const double loss : {kNotANumber, kInfinity, -kInfinity}) {
      const GuardVerdict verdict = Guard(config(word)).judge(loss, true, false);
      CHECK(verdict.action == action(word));
      CHECK(verdict.not_finite);
      CHECK(verdict.reason == "the loss is not finite");
    }
    const GuardVerdict verdict = Guard(config(word)).judge(2, false, false);
    CHECK(verdict.action == action(word));
    CHECK(verdict.not_finite);
    CHECK(verdict.reason == "a gradient is not finite");
  }
}

TEST_CASE("a sound step asks for nothing, whatever is configured") {
  for (const char* word : {"skip", "stop", "rollback"}) {
    Guard guard(config(word, word));
    for (int i = 0; i < 10; ++i) {
      const GuardVerdict verdict = guard.judge(2, true, false);
      CHECK(verdict.action == GuardAction::kNone);
      CHECK(verdict.reason.empty());
      CHECK_FALSE(verdict.not_finite);
    }
  }
}

TEST_CASE("an overflow under loss scaling is skipped without a word, whatever is configured") {
  for (const char* word : {"skip", "stop", "rollback"}) {
    const GuardVerdict verdict = Guard(config(word)).judge(2, false, true);
    CHECK(verdict.action == GuardAction::kSkip);
    CHECK(verdict.reason.empty());
  }
}

TEST_CASE("a loss that is not finite is no fault of the scale") {
  const GuardVerdict verdict = Guard(config("stop")).judge(kNotANumber, false, true);
  CHECK(verdict.action == GuardAction::kStop);
  CHECK(verdict.reason == "the loss is not finite");
}

TEST_CASE("a spike is a loss more than z_score standard deviations above the window's mean") {
  for (const std::string word : {"skip", "stop", "rollback"}) {
    CHECK(watchful(word).judge(2.29, true, false).action == GuardAction::kNone);
    const GuardVerdict verdict = watchful(word).judge(2.31, true, false);
    CHECK(verdict.action == action(word));
    CHECK_FALSE(verdict.not_finite);
    CHECK_THAT(verdict.reason, Catch::Matchers::Contains("the loss 2.31"));
    CHECK_THAT(verdict.reason, Catch::Matchers::Contains("more than 3 standard deviations"));
    CHECK_THAT(verdict.reason, Catch::Matchers::Contains("the mean 2 of the last 4"));
  }
}

TEST_CASE("a loss far below the window is no spike") {
  CHECK(watchful("stop").judge(0.1, true, false).action == GuardAction::kNone);
}

TEST_CASE("nothing is a spike before the window is full") {
  Guard guard(config("skip", "stop"));
  for (const double loss : {1.0, 100.0, 1.0, 1e9}) {
    CHECK(guard.judge(loss, true, false).action == GuardAction::kNone);
  }
}

TEST_CASE("with spike \"off\" no loss is a spike, and none is kept") {
  Guard guard(config("skip"));
  for (int i = 0; i < 10; ++i) CHECK(guard.judge(1, true, false).action == GuardAction::kNone);
  CHECK(guard.judge(1e30, true, false).action == GuardAction::kNone);
  CHECK(guard.recent_losses().empty());
}

TEST_CASE("the window moves: it holds the last accepted losses only") {
  Guard guard = watchful("skip");
  CHECK(guard.judge(9, true, false).action == GuardAction::kSkip);
  CHECK(guard.judge(kNotANumber, true, false).action == GuardAction::kSkip);
  CHECK(guard.judge(2.2, true, false).action == GuardAction::kNone);
  CHECK(guard.recent_losses() ==
        std::vector<double>{2.1, 1.9292893218813454, 2.0707106781186546, 2.2});
}

TEST_CASE("the max_skips-th skipped step in a row stops instead, and says so") {
  Guard guard(config("skip"));
  CHECK(guard.judge(kNotANumber, true, false).action == GuardAction::kSkip);
  CHECK(guard.judge(2, false, false).action == GuardAction::kSkip);
  CHECK(guard.skips_in_a_row() == 2);
  const GuardVerdict verdict = guard.judge(kInfinity, true, false);
  CHECK(verdict.action == GuardAction::kStop);
  CHECK_THAT(verdict.reason, Catch::Matchers::Contains("the loss is not finite"));
  CHECK_THAT(verdict.reason, Catch::Matchers::Contains("3 in a row (guard.max_skips)"));
}

TEST_CASE("an accepted step starts the count of skips anew") {
  Guard guard(config("skip"));
  for (int i = 0; i < 10; ++i) {
    CHECK(guard.judge(kNotANumber, true, false).action == GuardAction::kSkip);
    CHECK(guard.judge(2, false, false).action == GuardAction::kSkip);
    CHECK(guard.judge(2, true, false).action == GuardAction::kNone);
    CHECK(guard.skips_in_a_row() == 0);
  }
}

TEST_CASE("overflows under loss scaling stop as well when they do not end") {
  Guard guard(config("skip"));
  CHECK(guard.judge(2, false, true).action == GuardAction::kSkip);
  CHECK(guard.judge(2, false, true).action == GuardAction::kSkip);
  const GuardVerdict verdict = guard.judge(2, false, true);
  CHECK(verdict.action == GuardAction::kStop);
  CHECK_THAT(verdict.reason, Catch::Matchers::Contains("overflow under loss scaling"));
}

TEST_CASE("spikes count towards max_skips") {
  Guard guard = watchful("skip", 2);
  CHECK(guard.judge(9, true, false).action == GuardAction::kSkip);
  CHECK(guard.judge(9, true, false).action == GuardAction::kStop);
}

TEST_CASE("a restored guard gives the verdicts of one that never stopped") {
  GuardConfig of = config("skip", "rollback");
  of.max_skips = 4;
  // Sound ones, spikes, and some that are not finite, in an order that is the same each time.
  std::vector<double> losses;
  uint32_t state = 7;
  for (int i = 0; i < 300; ++i) {
    state = state * 1664525U + 1013904223U;
    const double noise = static_cast<double>(state >> 8) / (1U << 24);
    losses.push_back(noise < 0.1 ? 50 : noise < 0.35 ? kNotANumber : 2 + noise);
  }
  Guard going(of), stopped(of);
  int actions = 0;
  for (const double loss : losses) {
    Guard next(of);
    next.restore(stopped.recent_losses(), stopped.skips_in_a_row());
    stopped = next;
    const GuardVerdict a = going.judge(loss, true, false), b = stopped.judge(loss, true, false);
    CHECK(a.action == b.action);
    CHECK(a.reason == b.reason);
    actions |= 1 << static_cast<int>(a.action);
  }
  CHECK(actions == 15);  // all of them came up
}

TEST_CASE("a restored guard with a shorter window keeps the newest losses") {
  Guard guard(config("skip", "skip"));
  guard.restore({9, 8, 1, 2, 3, 4}, 1);
  CHECK(guard.recent_losses() == std::vector<double>{1, 2, 3, 4});
  CHECK(guard.skips_in_a_row() == 1);
}

TEST_CASE("a restored guard with a longer window waits until it is full") {
  Guard guard(config("skip", "stop"));
  guard.restore({1, 2}, 0);
  CHECK(guard.judge(100, true, false).action == GuardAction::kNone);
  CHECK(guard.recent_losses() == std::vector<double>{1, 2, 100});
}
