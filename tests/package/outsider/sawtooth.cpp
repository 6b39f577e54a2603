// lr(s) = lr * (1 - (s mod period) / period)

#include "zerolab/plugin.h"
#include "zerolab/scheduler.h"

struct Sawtooth : zerolab::Scheduler {
  struct Options {
    double lr = 0.01;
    int64_t period = 4;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("lr", &Options::lr, "learning rate at the top of a tooth").above(0);
      d.field("period", &Options::period, "length of a tooth").unit("steps").at_least(1);
    }
  } options;
  explicit Sawtooth(const Options& o) : options(o) {}
  void open(const zerolab::SchedulerContext&) override {}
  double lr(int64_t step) const override {
    return options.lr *
           (1 - static_cast<double>(step % options.period) / static_cast<double>(options.period));
  }
};

ZEROLAB_PLUGIN(zerolab::entry<Sawtooth>("scheduler/sawtooth", "0.1.0", "falls and jumps back"));
