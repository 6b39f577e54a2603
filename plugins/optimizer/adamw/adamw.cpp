// Adam with decoupled weight decay. Formula, with t the number of the update:
//   p <- p - lr * weight_decay * p                                     (ranges that decay)
//   m <- m + (1 - beta1) * (g - m);  v <- beta2 * v + (1 - beta2) * g^2
//   p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", arXiv 1711.05101,
// algorithm 2.
// Deviates: the decay is multiplied by lr, as in PyTorch.
//
// LibTorch's fused kernel does it in one pass. It works in vectors of up to 16 floats and cuts
// its threads' parts at 16 elements; its scalar tail rounds otherwise than its body, so what
// makes the result independent of where ranges begin and end is kRangeAlignment.

#include <vector>

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include "zerolab/optimizer.h"
#include "zerolab/plugin.h"

namespace {

class AdamW : public zerolab::Optimizer {
 public:
  struct Options {
    std::vector<double> betas = {0.9, 0.999};
    double eps = 1e-8;
    double weight_decay = 0.01;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("betas", &Options::betas, "decay rates of the two running averages")
          .length(2)
          .at_least(0)
          .below(1);
      d.field("eps", &Options::eps, "added to the root of the second average").above(0);
      d.field("weight_decay", &Options::weight_decay,
              "decoupled, times lr; for parameters of two dimensions or more")
          .at_least(0);
    }
  };
  explicit AdamW(const Options& options) : options_(options) {}

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

  void update(std::span<zerolab::OptimizerRange> ranges, const zerolab::UpdateStep& step) override {
    update_group(ranges, step, true, options_.weight_decay);
    update_group(ranges, step, false, 0);
  }

 private:
  /// The ranges of one decay in one call: the kernel takes the decay per call.
  void update_group(std::span<zerolab::OptimizerRange> ranges, const zerolab::UpdateStep& step,
                    bool decay, double weight_decay) {
    parameters_.clear(), gradients_.clear(), averages_.clear(), squares_.clear(), steps_.clear();
    at::Tensor count;
    for (zerolab::OptimizerRange& range : ranges) {
      if (range.decay != decay || range.parameters.numel() == 0) continue;
      if (step.gradient_multiplier != 1) {
        range.gradients.mul_(static_cast<float>(step.gradient_multiplier));
      }
      if (!count.defined()) {
        count = at::full({}, static_cast<double>(step.step), range.parameters.options());
      }
      parameters_.push_back(range.parameters);
      gradients_.push_back(range.gradients);
      averages_.push_back(range.states[0]);
      squares_.push_back(range.states[1]);
      steps_.push_back(count);
    }
    if (parameters_.empty()) return;
    at::_fused_adamw_(parameters_, gradients_, averages_, squares_, /*max_exp_avg_sqs=*/{}, steps_,
                      step.lr, options_.betas[0], options_.betas[1], weight_decay, options_.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
    parameters_.clear(), gradients_.clear(), averages_.clear(), squares_.clear();
  }

  Options options_;
  // Lists for the kernel, kept for their capacity.
  std::vector<at::Tensor> parameters_, gradients_, averages_, squares_, steps_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<AdamW>("optimizer/adamw", "1.0.0", "Adam with decoupled weight decay",
                                     "https://arxiv.org/abs/1711.05101"));
