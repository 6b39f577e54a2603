#pragma once
// Kind `scheduler`: the learning rate as a pure function of the step, so that resuming needs no
// state.
//
// Ranks: local.
//
// Implementing this:
//  - lr(step) depends on nothing but the options, the context and `step`; lr(0) holds for the
//    first step.
//  - lr(s) is finite and not negative for 0 <= s < num_steps, and stays at its last value from
//    num_steps on.

#include <cstdint>

#include "zerolab/export.h"
#include "zerolab/kind.h"

namespace zerolab {

struct SchedulerContext {
  int64_t num_steps = 0;  ///< optimizer steps of the experiment
};

class ZEROLAB_API Scheduler {
 public:
  static constexpr Kind kKind = Kind::kScheduler;
  virtual ~Scheduler();
  /// [setup] Errors: ConfigError, e.g. for a warmup longer than the run.
  virtual void open(const SchedulerContext& context) = 0;
  /// [hot] Learning rate of step `step`, counted from 0.
  virtual double lr(int64_t step) const = 0;
};

}  // namespace zerolab
