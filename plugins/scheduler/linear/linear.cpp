// Linear warmup, then a straight line down to min_lr. Formula, with w = warmup_steps and
// last = decay_steps - 1:
//   lr(s) = lr * ((s + 1) / w)                                      for s < w
//           min_lr + (lr - min_lr) * ((last - s) / (last - w))      for w <= s <= last
// lr(w - 1), lr(w) and lr(last) are exact; min_lr holds after last.
// Source: Goyal et al., "Accurate, Large Minibatch SGD", arXiv 1706.02677, section 2.2 (warmup);
// Devlin et al., "BERT", arXiv 1810.04805, appendix A.2 (linear decay).
// Deviates: the end is the last step itself, not the step after it, so that min_lr is trained
// with.

#include <algorithm>
#include <string>

#include "zerolab/error.h"
#include "zerolab/plugin.h"
#include "zerolab/scheduler.h"

namespace {

class Linear : public zerolab::Scheduler {
 public:
  struct Options {
    double lr = 3e-4;
    double min_lr = 0;
    int64_t warmup_steps = 0;
    int64_t decay_steps = 0;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("lr", &Options::lr, "learning rate at the end of the warmup").above(0);
      d.field("min_lr", &Options::min_lr, "learning rate at the end, at most lr").at_least(0);
      d.field("warmup_steps", &Options::warmup_steps,
              "linear warmup up to lr, shorter than the run")
          .unit("steps")
          .at_least(0);
      d.field("decay_steps", &Options::decay_steps,
              "steps until min_lr is reached, warmup included; 0 is the run's length")
          .unit("steps")
          .at_least(0);
    }
    void check(zerolab::Problems& problems) const {
      if (min_lr > lr) problems.add("min_lr", "must not exceed lr");
      if (decay_steps > 0 && warmup_steps >= decay_steps) {
        problems.add("decay_steps", "counts the warmup too and must exceed warmup_steps (" +
                                        std::to_string(warmup_steps) + "), or be 0");
      }
    }
  };
  explicit Linear(const Options& options) : options_(options) {}

  void open(const zerolab::SchedulerContext& context) override {
    if (options_.warmup_steps >= context.num_steps) {
      throw zerolab::ConfigError(
          "scheduler.warmup_steps is " + std::to_string(options_.warmup_steps) +
          ", but the run has " + std::to_string(context.num_steps) +
          " steps: the warmup must be shorter than the run; lower it, or raise 'steps'.");
    }
    final_step_ = context.num_steps - 1;
    last_ = options_.decay_steps > 0 ? options_.decay_steps - 1 : final_step_;
  }

  double lr(int64_t step) const override {
    const int64_t warmup = options_.warmup_steps;
    // A run that stops before the decay ends keeps its own last value.
    const int64_t s = std::min(step, final_step_);
    if (s < warmup) {
      return options_.lr * (static_cast<double>(s + 1) / static_cast<double>(warmup));
    }
    if (s == warmup) return options_.lr;  // also where the decay ends there
    if (s >= last_) return options_.min_lr;
    const double share = static_cast<double>(last_ - s) / static_cast<double>(last_ - warmup);
    return std::min(options_.lr, options_.min_lr + (options_.lr - options_.min_lr) * share);
  }

 private:
  Options options_;
  int64_t final_step_ = 0, last_ = 0;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Linear>("scheduler/linear", "1.0.0",
                                      "linear warmup, then a straight line down to min_lr",
                                      "https://arxiv.org/abs/1706.02677"));
