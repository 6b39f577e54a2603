// Linear warmup, then a straight line down to min_lr: zerolab/warmup_decay.h with
//   share(passed, steps) = (steps - passed) / steps
// Source: Devlin et al., "BERT", arXiv 1810.04805, appendix A.2 (linear decay).
// Deviates: min_lr is the last step's, as there.

#include "zerolab/plugin.h"
#include "zerolab/scheduler.h"
#include "zerolab/warmup_decay.h"

namespace {

class Linear : public zerolab::Scheduler {
 public:
  struct Options : zerolab::WarmupDecayOptions {
    static void describe(zerolab::Describe<Options>& d) { describe_into(d); }
  };
  explicit Linear(const Options& options) : decay_(options) {}

  void open(const zerolab::SchedulerContext& context) override { decay_.open(context); }
  double lr(int64_t step) const override {
    return decay_.lr(step, [](int64_t passed, int64_t steps) {
      return static_cast<double>(steps - passed) / static_cast<double>(steps);
    });
  }

 private:
  zerolab::WarmupDecay decay_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Linear>("scheduler/linear", "1.0.0",
                                      "linear warmup, then a straight line down to min_lr",
                                      "https://arxiv.org/abs/1706.02677"));
