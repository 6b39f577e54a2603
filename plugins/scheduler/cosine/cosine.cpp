// Linear warmup, then half a cosine down to min_lr: zerolab/warmup_decay.h with
//   share(passed, steps) = (1 + cos(pi * passed / steps)) / 2
// Source: Loshchilov and Hutter, "SGDR", arXiv 1608.03983, equation 5 without restarts.
// Deviates: warmup; min_lr is the last step's, as there.

#include <cmath>
#include <numbers>

#include "zerolab/plugin.h"
#include "zerolab/scheduler.h"
#include "zerolab/warmup_decay.h"

namespace {

class Cosine : public zerolab::Scheduler {
 public:
  struct Options : zerolab::WarmupDecayOptions {
    static void describe(zerolab::Describe<Options>& d) { describe_into(d); }
  };
  explicit Cosine(const Options& options) : decay_(options) {}

  void open(const zerolab::SchedulerContext& context) override { decay_.open(context); }
  double lr(int64_t step) const override {
    return decay_.lr(step, [](int64_t passed, int64_t steps) {
      const double progress = static_cast<double>(passed) / static_cast<double>(steps);
      return 0.5 * (1 + std::cos(std::numbers::pi * progress));
    });
  }

 private:
  zerolab::WarmupDecay decay_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Cosine>("scheduler/cosine", "1.0.0",
                                      "linear warmup, then half a cosine down to min_lr",
                                      "https://arxiv.org/abs/1608.03983"));
