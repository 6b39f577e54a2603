#include "zerolab/loss_scaler.h"

#include <limits>
#include <vector>

#include "zerolab/error.h"

#include "catch.h"

namespace {

using zerolab::DynamicLossScaler;
using zerolab::LossScalerOptions;

/// The scale after each step of a trajectory: 'o' for a finite one, 'x' for an overflow.
std::vector<double> trajectory(DynamicLossScaler& scaler, const std::string& steps) {
  std::vector<double> scales;
  for (const char step : steps) {
    scaler.update(step == 'o');
    scales.push_back(scaler.scale());
  }
  return scales;
}

std::vector<std::string> problems_of(const LossScalerOptions& options) {
  zerolab::Problems problems;
  options.check(problems);
  std::vector<std::string> names;
  for (const auto& problem : problems.list()) names.push_back(problem.option);
  return names;
}

using Scales = std::vector<double>;

}  // namespace

TEST_CASE("the loss scale starts at 65536 and keeps it for 1999 finite steps") {
  DynamicLossScaler scaler({});
  for (int i = 0; i < 1999; ++i) scaler.update(true);
  CHECK(scaler.scale() == 65536);
  scaler.update(true);
  CHECK(scaler.scale() == 131072);
}

TEST_CASE("the loss scale halves at each overflow, and the finite steps count anew") {
  DynamicLossScaler scaler({.init_scale = 1024, .growth_interval = 3});
  CHECK(trajectory(scaler, "ooxooxooo") == Scales{1024, 1024, 512, 512, 512, 256, 256, 256, 512});
}

TEST_CASE("hysteresis bears overflows until the scale grows, not until a finite step") {
  DynamicLossScaler scaler({.init_scale = 1024, .growth_interval = 3, .hysteresis = 3});
  // Two are borne, whatever is between; from the third on each lowers the scale.
  CHECK(trajectory(scaler, "xoxoxx") == Scales{1024, 1024, 1024, 1024, 512, 256});
  // Growth makes it whole again.
  CHECK(trajectory(scaler, "oooxxx") == Scales{256, 256, 512, 512, 512, 256});
}

TEST_CASE("an overflow that the hysteresis bears restarts the count of finite steps") {
  DynamicLossScaler scaler({.init_scale = 8, .growth_interval = 3, .hysteresis = 2});
  CHECK(trajectory(scaler, "ooxooo") == Scales{8, 8, 8, 8, 8, 16});
}

TEST_CASE("the loss scale stays at its minimum, and within float32") {
  DynamicLossScaler low({.init_scale = 4, .min_scale = 2});
  CHECK(trajectory(low, "xxx") == Scales{2, 2, 2});
  DynamicLossScaler high({.init_scale = 0x1p126, .growth_interval = 1});
  CHECK(trajectory(high, "ooo") == Scales{0x1p127, 0x1p127, 0x1p127});
}

TEST_CASE("a restored loss scaler goes on as if it had never stopped") {
  const LossScalerOptions options = {.init_scale = 64, .growth_interval = 4, .hysteresis = 2};
  const std::string steps = "oooxoxoooooxoooxxoooo";
  DynamicLossScaler whole(options);
  const Scales expected = trajectory(whole, steps);
  for (size_t stop = 0; stop <= steps.size(); ++stop) {
    DynamicLossScaler first(options), second(options);
    Scales scales = trajectory(first, steps.substr(0, stop));
    second.restore(first.state());
    CHECK(second.scale() == first.scale());
    for (const double scale : trajectory(second, steps.substr(stop))) scales.push_back(scale);
    CHECK(scales == expected);
  }
}

TEST_CASE("a loss scaler goes on under other options, as far as these allow") {
  DynamicLossScaler patient({.init_scale = 8, .growth_interval = 100, .hysteresis = 5});
  trajectory(patient, "xoooo");
  // Fewer steps to growth than were made, fewer overflows to bear than were left.
  DynamicLossScaler quick({.init_scale = 64, .growth_interval = 3, .min_scale = 2});
  quick.restore(patient.state());
  CHECK(trajectory(quick, "oxxx") == Scales{16, 8, 4, 2});
  DynamicLossScaler hasty({.growth_interval = 3, .hysteresis = 1});
  hasty.restore(patient.state());
  CHECK(trajectory(hasty, "x") == Scales{4});
  DynamicLossScaler high({.init_scale = 64, .min_scale = 32});
  high.restore(patient.state());
  CHECK(high.scale() == 32);
}

TEST_CASE("a loss scaler passes over names it does not know and refuses what cannot be") {
  DynamicLossScaler scaler({});
  scaler.restore({{"of_another_version", 3}});
  CHECK(scaler.scale() == 65536);
  for (const auto& [name, value] :
       {std::pair{"loss_scale", 3.0},
        {"loss_scale", 0.0},
        {"loss_scale", -2.0},
        {"loss_scale", std::numeric_limits<double>::quiet_NaN()},
        {"loss_scale", std::numeric_limits<double>::infinity()},
        {"growth_tracker", 0.5},
        {"growth_tracker", -1.0},
        {"growth_tracker", 0x1p60},
        {"hysteresis_left", 0.0},
        {"hysteresis_left", 1.5},
        {"hysteresis_left", std::numeric_limits<double>::quiet_NaN()}}) {
    CAPTURE(name, value);
    CHECK_THROWS_AS(scaler.restore({{name, value}}), zerolab::Error);
  }
}

TEST_CASE("loss scale options are powers of two, and the minimum does not exceed the start") {
  using Names = std::vector<std::string>;
  CHECK(problems_of({}).empty());
  CHECK(problems_of(
            {.init_scale = 0.25, .growth_factor = 8, .backoff_factor = 0.125, .min_scale = 0x1p-20})
            .empty());
  CHECK(problems_of({.init_scale = 1000}) == Names{"init_scale"});
  CHECK(problems_of({.growth_factor = 3}) == Names{"growth_factor"});
  CHECK(problems_of({.backoff_factor = 0.3}) == Names{"backoff_factor"});
  CHECK(problems_of({.init_scale = 4, .min_scale = 8}) == Names{"min_scale"});
  CHECK(problems_of({.init_scale = 0x1p200}) == Names{"init_scale"});
  zerolab::Problems problems;
  LossScalerOptions{.init_scale = 4, .min_scale = 8}.check(problems);
  CHECK(problems.list().front().message == "must not exceed init_scale (4.0), is 8.0");
}
