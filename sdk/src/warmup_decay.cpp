#include "zerolab/warmup_decay.h"

#include <algorithm>
#include <string>

#include "zerolab/error.h"

namespace zerolab {

double warmup_lr(double lr, int64_t step, int64_t warmup_steps) {
  return lr * (static_cast<double>(step + 1) / static_cast<double>(warmup_steps));
}

double decayed_lr(double lr, double min_lr, double share) {
  return std::min(lr, min_lr + (lr - min_lr) * share);
}

void check_min_lr(double lr, double min_lr, Problems& problems) {
  if (min_lr > lr)
    problems.add("min_lr", "must not exceed lr (" + to_toml(lr) + "), is " + to_toml(min_lr));
}

void WarmupDecayOptions::check(Problems& problems) const {
  check_min_lr(lr, min_lr, problems);
  if (decay_steps > 0 && warmup_steps >= decay_steps)
    problems.add("decay_steps", "counts the warmup too and must exceed warmup_steps (" +
                                    std::to_string(warmup_steps) + "), or be 0");
}

void WarmupDecay::open(const SchedulerContext& context) {
  if (options_.warmup_steps >= context.num_steps)
    throw ConfigError("scheduler.warmup_steps is " + std::to_string(options_.warmup_steps) +
                      ", but the run has " + std::to_string(context.num_steps) +
                      " steps: the warmup must be shorter than the run; lower it, or raise "
                      "'steps'.");
  final_step_ = context.num_steps - 1;
  last_ = options_.decay_steps > 0 ? options_.decay_steps - 1 : final_step_;
}

double WarmupDecay::lr(int64_t step, Share share) const {
  const int64_t s = std::min(step, final_step_), warmup = options_.warmup_steps;
  if (s < warmup) return warmup_lr(options_.lr, s, warmup);
  if (s == warmup) return options_.lr;  // also where the decay ends there
  if (s >= last_) return options_.min_lr;
  return decayed_lr(options_.lr, options_.min_lr, share(s - warmup, last_ - warmup));
}

}  // namespace zerolab
