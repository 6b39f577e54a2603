// Warmup, stable, decay: lr is held until the decay at the run's end. Formula, with
// w = warmup_steps, last = num_steps - 1, d = decay_fraction * num_steps (rounded) and
// x = (s - (last - d)) / d:
//   lr(s) = lr * ((s + 1) / w)                          for s < w
//           lr                                          for w <= s <= last - d
//           min_lr + (lr - min_lr) * share(x)           for last - d < s <= last
//   share(x) = 1 - x;  (1 + cos(pi * x)) / 2;  1 - sqrt(x)
// So d steps have less than lr; lr(w - 1), lr(last - d) and lr(last) are exact.
// Source: Hu et al., "MiniCPM", arXiv 2404.06395, section 4 (the schedule); Haegele et al.,
// "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", arXiv 2405.18392,
// section 4 (shapes; 1 - sqrt ends lowest there).
// Deviates: MiniCPM decays exponentially.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "zerolab/error.h"
#include "zerolab/plugin.h"
#include "zerolab/scheduler.h"
#include "zerolab/warmup_decay.h"

namespace {

class Wsd : public zerolab::Scheduler {
 public:
  struct Options {
    double lr = 3e-4;
    double min_lr = 0;
    int64_t warmup_steps = 0;
    double decay_fraction = 0.1;
    std::string decay_shape = "linear";
    static void describe(zerolab::Describe<Options>& d) {
      d.field("lr", &Options::lr, "learning rate between warmup and decay").above(0);
      d.field("min_lr", &Options::min_lr, "learning rate of the last step, at most lr").at_least(0);
      d.field("warmup_steps", &Options::warmup_steps, "linear warmup up to lr")
          .unit("steps")
          .at_least(0);
      d.field("decay_fraction", &Options::decay_fraction,
              "share of the run's steps that decays, at its end")
          .at_least(0)
          .at_most(1);
      d.field("decay_shape", &Options::decay_shape, "line of the decay")
          .one_of({"linear", "cosine", "one_minus_sqrt"});
    }
    void check(zerolab::Problems& problems) const { zerolab::check_min_lr(lr, min_lr, problems); }
  };
  explicit Wsd(const Options& options) : options_(options) {}

  void open(const zerolab::SchedulerContext& context) override {
    last_ = context.num_steps - 1;
    decay_steps_ = std::llround(options_.decay_fraction * static_cast<double>(context.num_steps));
    if (options_.warmup_steps > context.num_steps - decay_steps_) {
      throw zerolab::ConfigError(
          "scheduler.warmup_steps is " + std::to_string(options_.warmup_steps) +
          " and scheduler.decay_fraction makes " + std::to_string(decay_steps_) +
          " steps of decay, but the run has " + std::to_string(context.num_steps) +
          " steps: both must fit into it; lower one of them, or raise 'steps'.");
    }
  }

  double lr(int64_t step) const override {
    const int64_t s = std::min(step, last_), warmup = options_.warmup_steps;
    if (s < warmup) return zerolab::warmup_lr(options_.lr, s, warmup);
    const int64_t held_until = last_ - decay_steps_;
    if (s <= held_until) return options_.lr;
    if (s == last_) return options_.min_lr;
    const double x = static_cast<double>(s - held_until) / static_cast<double>(decay_steps_);
    return zerolab::decayed_lr(options_.lr, options_.min_lr, share(x));
  }

 private:
  double share(double x) const {
    if (options_.decay_shape == "cosine") return 0.5 * (1 + std::cos(std::numbers::pi * x));
    return options_.decay_shape == "linear" ? 1 - x : 1 - std::sqrt(x);
  }

  Options options_;
  int64_t last_ = 0, decay_steps_ = 0;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Wsd>("scheduler/wsd", "1.0.0",
                                   "linear warmup, constant, then a decay at the run's end",
                                   "https://arxiv.org/abs/2404.06395"));
