#pragma once
// A linear warmup up to lr, then a decay down to min_lr whose end points are exact. A Scheduler
// plugin holds a WarmupDecay, forwards open() to it, and adds the shape of its decay.
//
// Formula, with w = warmup_steps and last = decay_steps - 1:
//   lr(s) = lr * ((s + 1) / w)                                   for s < w
//           min_lr + (lr - min_lr) * share(s - w, last - w)      for w <= s <= last
// The quotient first: it is exactly 1 at the last warmup step. lr(w - 1), lr(w) and lr(last) are
// exact, whatever share() says there; min_lr holds after last.
//
// Ranks: local.
// Source: Goyal et al., "Accurate, Large Minibatch SGD", arXiv 1706.02677, section 2.2 (warmup).
// Deviates: the end is the last step itself, not the step after it, so that min_lr is trained
// with.

#include <cstdint>

#include "zerolab/export.h"
#include "zerolab/options.h"
#include "zerolab/scheduler.h"

namespace zerolab {

/// [hot] Learning rate of a step of the warmup: step < warmup_steps.
ZEROLAB_API double warmup_lr(double lr, int64_t step, int64_t warmup_steps);
/// [hot] Learning rate where `share` (0 to 1) of the way from min_lr to lr is left; rounding never
/// lifts it above lr.
ZEROLAB_API double decayed_lr(double lr, double min_lr, double share);
/// min_lr must not exceed lr; for the check() of a scheduler's options.
ZEROLAB_API void check_min_lr(double lr, double min_lr, Problems& problems);

struct ZEROLAB_API WarmupDecayOptions {
  double lr = 3e-4;
  double min_lr = 0;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;

  /// Describes the fields above; for the describe() of a struct that derives from this.
  template <class Options>
  static void describe_into(Describe<Options>& d);
  void check(Problems& problems) const;
};

class ZEROLAB_API WarmupDecay {
 public:
  /// The share of lr - min_lr that is left after `passed` of a decay's `steps`, 0 < passed < steps.
  using Share = double (*)(int64_t passed, int64_t steps);

  explicit WarmupDecay(const WarmupDecayOptions& options) : options_(options) {}
  /// [setup] Errors: ConfigError for a warmup as long as the run.
  void open(const SchedulerContext& context);
  /// [hot] Learning rate of step `step`, counted from 0. A run that stops before the decay ends
  /// keeps its own last value.
  double lr(int64_t step, Share share) const;

 private:
  WarmupDecayOptions options_;
  int64_t final_step_ = 0, last_ = 0;
};

template <class Options>
void WarmupDecayOptions::describe_into(Describe<Options>& d) {
  const auto field = [&d]<class T>(const char* name, T WarmupDecayOptions::*member,
                                   const char* doc) {
    return d.field(name, static_cast<T Options::*>(member), doc);
  };
  field("lr", &WarmupDecayOptions::lr, "learning rate at the end of the warmup").above(0);
  field("min_lr", &WarmupDecayOptions::min_lr, "learning rate at the end, at most lr").at_least(0);
  field("warmup_steps", &WarmupDecayOptions::warmup_steps,
        "linear warmup up to lr, shorter than the run")
      .unit("steps")
      .at_least(0);
  field("decay_steps", &WarmupDecayOptions::decay_steps,
        "steps until min_lr is reached, warmup included; 0 is the run's length")
      .unit("steps")
      .at_least(0);
}

}  // namespace zerolab
