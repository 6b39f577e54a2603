// A strategy with a mistake: before an update, the last rank moves one of its parameters by units
// in the last place. Otherwise ZeRO-2.

#include <ATen/core/grad_mode.h>

#include "zerolab/flat_sharding.h"
#include "zerolab/plugin.h"

namespace {

class OffByABit : public zerolab::FlatSharding {
 public:
  struct Options : zerolab::FlatOptions {
    int64_t ulps = 1;
    int64_t from_update = 1;
    bool every_other_run = false;
    double tolerance = 0;
    static void describe(zerolab::Describe<Options>& d) {
      describe_into(d);
      d.field("ulps", &Options::ulps, "how far the parameter is moved");
      d.field("from_update", &Options::from_update, "the first update that is wrong").at_least(1);
      d.field("every_other_run", &Options::every_other_run, "right in a process's first run");
      d.field("tolerance", &Options::tolerance, "what it says about its losses").at_least(0);
    }
  };
  explicit OffByABit(const Options& options)
      : FlatSharding(zerolab::ZeroStage::kGradients, {options}), options_(options) {}

  void attach(const zerolab::ShardingContext& context) override {
    static int runs = 0;
    const bool wrong_run = !options_.every_other_run || ++runs % 2 == 0;
    wrong_ = wrong_run && context.world.rank() == context.world.size() - 1;
    FlatSharding::attach(context);
  }
  void update(const zerolab::UpdateStep& step) override {
    if (wrong_ && step.step >= options_.from_update) move_a_parameter();
    FlatSharding::update(step);
  }
  double loss_tolerance() const override { return options_.tolerance; }

 private:
  void move_a_parameter() {
    const at::NoGradGuard no_grad;
    for (const zerolab::StatePiece& piece : state()) {
      if (piece.state != "parameter" || piece.length == 0) continue;
      piece.data.narrow(0, 0, 1).view(at::kInt).add_(options_.ulps);
      return;
    }
  }

  Options options_;
  bool wrong_ = false;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<OffByABit>("sharding/off_by_a_bit", "1.0.0",
                                         "ZeRO-2 with a parameter that is moved a little"));
