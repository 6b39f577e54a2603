// The learning rate falls by a factor every so many steps.
// Formula: lr(s) = lr * factor^floor(s / every). The contract is in zerolab/scheduler.h.

#include "zerolab/scheduler.h"

#include <cmath>

#include "zerolab/plugin.h"

namespace {

class MyScheduler : public zerolab::Scheduler {
 public:
  struct Options {
    double lr = 3e-4;
    double factor = 0.5;
    int64_t every = 1000;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("lr", &Options::lr, "learning rate at the start").above(0);
      d.field("factor", &Options::factor, "multiplies the learning rate").above(0).at_most(1);
      d.field("every", &Options::every, "steps between two falls").unit("steps").at_least(1);
    }
  };
  explicit MyScheduler(const Options& options) : options_(options) {}

  void open(const zerolab::SchedulerContext&) override {}
  double lr(int64_t step) const override {
    const auto falls = static_cast<double>(step / options_.every);
    return options_.lr * std::pow(options_.factor, falls);
  }

 private:
  Options options_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<MyScheduler>("scheduler/my_scheduler", "0.1.0",
                                           "falls by a factor every so many steps"));
