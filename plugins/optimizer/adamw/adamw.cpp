// Adam with decoupled weight decay. Formula, with t the number of the update:
//   p <- p - lr * weight_decay * p                                     (ranges that decay)
//   m <- m + (1 - beta1) * (g - m);  v <- beta2 * v + (1 - beta2) * g^2
//   p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", arXiv 1711.05101,
// algorithm 2.
// Deviates: the decay is multiplied by lr, as in PyTorch.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "zerolab/fused_update.h"
#include "zerolab/optimizer.h"
#include "zerolab/plugin.h"
#include "zerolab/vector_clones.h"

namespace {

/// What is the same for all elements of an update.
struct Factors {
  float keep;                     // 1 - lr * weight_decay
  float weight1, beta2, weight2;  // weight = 1 - beta
  float rate;                     // lr / (1 - beta1^t)
  float correction;               // sqrt(1 - beta2^t)
  float eps;
};

ZEROLAB_VECTOR_CLONES void update_block(const zerolab::UpdateBlock& block, const Factors& f) {
  float* __restrict p = block.parameters;
  const float* __restrict g = block.gradients;
  float* __restrict m = block.states[0];
  float* __restrict v = block.states[1];
  const float keep = block.decay ? f.keep : 1;
  for (int64_t i = 0; i < block.n; ++i) {
    m[i] += f.weight1 * (g[i] - m[i]);
    v[i] = f.beta2 * v[i] + f.weight2 * (g[i] * g[i]);
    const float root = std::sqrt(v[i]) / f.correction + f.eps;
    p[i] = p[i] * keep - f.rate * m[i] / root;
  }
}

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
  bool takes_low_precision() const override { return true; }

  void update(std::span<zerolab::OptimizerRange> ranges, const zerolab::UpdateStep& step) override {
    const double beta1 = options_.betas[0], beta2 = options_.betas[1];
    const auto t = static_cast<double>(step.step);
    const Factors factors = {
        .keep = static_cast<float>(1 - step.lr * options_.weight_decay),
        .weight1 = static_cast<float>(1 - beta1),
        .beta2 = static_cast<float>(beta2),
        .weight2 = static_cast<float>(1 - beta2),
        .rate = static_cast<float>(step.lr / (1 - std::pow(beta1, t))),
        .correction = static_cast<float>(std::sqrt(1 - std::pow(beta2, t))),
        // Not zero, or padding would become 0 / 0.
        .eps = std::max(static_cast<float>(options_.eps), std::numeric_limits<float>::min())};
    zerolab::update_in_blocks(
        ranges, step, [&](const zerolab::UpdateBlock& block) { update_block(block, factors); });
  }

 private:
  Options options_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<AdamW>("optimizer/adamw", "1.1.0", "Adam with decoupled weight decay",
                                     "https://arxiv.org/abs/1711.05101"));
