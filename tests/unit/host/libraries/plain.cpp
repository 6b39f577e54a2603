// A good plugin that leaves a trace the moment any of its code runs.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "zerolab/plugin.h"
#include "zerolab/scheduler.h"

namespace {

struct Trace {
  Trace() {
    const char* const file = std::getenv("ZEROLAB_TEST_TRACE");
    if (file == nullptr) return;
    if (std::FILE* trace = std::fopen(file, "w")) std::fclose(trace);
  }
} const trace;

class Plain : public zerolab::Scheduler {
 public:
  struct Options {
    double lr = 0.1;
    int64_t warmup_steps = 100;
    std::string shape = "flat";
    std::vector<double> weights = {0.9, 0.95};
    int64_t bucket = 1024;
    std::string file;
    bool loud = false;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("lr", &Options::lr, "learning rate").above(0).at_most(1);
      d.field("warmup_steps", &Options::warmup_steps, "linear warmup from zero\nto lr")
          .unit("steps")
          .at_least(0);
      d.field("shape", &Options::shape, "how it \"bends\"").one_of({"flat", "round"});
      d.field("weights", &Options::weights, "two of them").length(2);
      d.field("bucket", &Options::bucket, "elements of a bucket").size().at_least(1);
      d.field("file", &Options::file, "where rates are read from").path().required();
      d.field("loud", &Options::loud, "say every rate");
    }
  };
  explicit Plain(const Options& options) : lr_(options.lr) {}
  void open(const zerolab::SchedulerContext&) override {}
  double lr(int64_t) const override { return lr_; }

 private:
  double lr_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Plain>("scheduler/plain", "1.2.3", "always the same rate",
                                     "a source"));
