// Schedulers against torch.optim.lr_scheduler, at every step of short runs.

#include <string>
#include <vector>

#include "zerolab/scheduler.h"

#include "golden_file.h"
#include "near.h"
#include "plugins/load_plugin.h"

namespace {

/// PyTorch's cosine is a recursion over steps, ours a closed form, both in double precision.
constexpr double kTolerance = 1e-12;

int check_scheduler(const std::string& wanted) {
  const GoldenFile golden("schedules");
  int settings = 0;
  for (const std::string& at : golden.names("")) {
    if (golden.text(at, "scheduler") != wanted) continue;
    ++settings;
    const zerolab::OptionValues options = golden.options(at + "/options");
    const auto scheduler = load_plugin<zerolab::Scheduler>("scheduler/" + wanted, options);
    const auto num_steps = static_cast<int64_t>(golden.number(at, "num_steps"));
    scheduler->open({num_steps});
    const std::vector<double> expected = golden.numbers(at + "/lr");
    REQUIRE(static_cast<int64_t>(expected.size()) == num_steps);
    const double peak = std::get<double>(options.at("lr"));
    for (int64_t step = 0; step < num_steps; ++step) {
      CAPTURE(at, step);
      CHECK(scheduler->lr(step) ==
            Approx(expected[static_cast<size_t>(step)]).margin(kTolerance * peak));
    }
    CHECK(scheduler->lr(10 * num_steps) == scheduler->lr(num_steps - 1));
  }
  return settings;
}

}  // namespace

TEST_CASE("scheduler/constant follows PyTorch's LinearLR warmup and stays") {
  CHECK(check_scheduler("constant") >= 3);
}

TEST_CASE("scheduler/linear follows PyTorch's LinearLR") {
  CHECK(check_scheduler("linear") >= 5);
}

TEST_CASE("scheduler/cosine follows PyTorch's CosineAnnealingLR") {
  CHECK(check_scheduler("cosine") >= 5);
}

TEST_CASE("scheduler/wsd follows PyTorch's warmup, constant and decay in sequence") {
  CHECK(check_scheduler("wsd") >= 5);
}
