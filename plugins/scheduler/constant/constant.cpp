// A constant learning rate after an optional linear warmup.
// Formula: lr(s) = lr * ((s + 1) / warmup_steps) for s < warmup_steps, else lr.

#include "zerolab/plugin.h"
#include "zerolab/scheduler.h"
#include "zerolab/warmup_decay.h"

namespace {

class Constant : public zerolab::Scheduler {
 public:
  struct Options {
    double lr = 3e-4;
    int64_t warmup_steps = 0;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("lr", &Options::lr, "learning rate").above(0);
      d.field("warmup_steps", &Options::warmup_steps, "linear warmup up to lr")
          .unit("steps")
          .at_least(0);
    }
  };
  explicit Constant(const Options& options) : options_(options) {}
  void open(const zerolab::SchedulerContext&) override {}
  double lr(int64_t step) const override {
    if (step >= options_.warmup_steps) return options_.lr;
    return zerolab::warmup_lr(options_.lr, step, options_.warmup_steps);
  }

 private:
  Options options_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Constant>("scheduler/constant", "1.0.0",
                                        "constant learning rate after an optional linear warmup"));
