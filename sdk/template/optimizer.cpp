// Gradient descent with momentum and weight decay.
// Formula: g <- gradient_multiplier * g + weight_decay * p;  m <- momentum * m + g;
//          p <- p - lr * m
// The contract is in zerolab/optimizer.h. With update_in_blocks() of zerolab/fused_update.h the
// same is one pass over memory instead of four, and takes 16-bit gradients.

#include "zerolab/optimizer.h"

#include "zerolab/plugin.h"

namespace {

class MyOptimizer : public zerolab::Optimizer {
 public:
  struct Options {
    double momentum = 0.9;
    double weight_decay = 0;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("momentum", &Options::momentum, "how much of the last step stays")
          .at_least(0)
          .below(1);
      d.field("weight_decay", &Options::weight_decay, "pulls weights of two dimensions to zero")
          .at_least(0);
    }
  };
  explicit MyOptimizer(const Options& options) : options_(options) {}

  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }

  void update(std::span<zerolab::OptimizerRange> ranges, const zerolab::UpdateStep& step) override {
    for (zerolab::OptimizerRange& range : ranges) {
      range.gradients.mul_(step.gradient_multiplier);
      if (range.decay && options_.weight_decay > 0) {
        range.gradients.add_(range.parameters, options_.weight_decay);
      }
      range.states[0].mul_(options_.momentum).add_(range.gradients);
      range.parameters.sub_(range.states[0], step.lr);
    }
  }

 private:
  Options options_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<MyOptimizer>("optimizer/my_optimizer", "0.1.0",
                                           "gradient descent with momentum"));
