// Lion: steps of one size, along the sign of a running average. Formula:
//   c <- m + (1 - beta1) * (g - m)
//   p <- p - lr * weight_decay * p - lr * sign(c)                      (decay: where asked for)
//   m <- m + (1 - beta2) * (g - m)
// Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675,
// algorithm 2. Its lr is to be 3 to 10 times smaller than Adam's, its weight decay larger by as
// much (section 5).

#include <vector>

#include "zerolab/fused_update.h"
#include "zerolab/optimizer.h"
#include "zerolab/plugin.h"
#include "zerolab/vector_clones.h"

namespace {

/// What is the same for all elements of an update.
struct Factors {
  float keep;              // 1 - lr * weight_decay
  float weight1, weight2;  // weight = 1 - beta
  float lr;
};

ZEROLAB_VECTOR_CLONES void update_block(const zerolab::UpdateBlock& block, const Factors& f) {
  float* __restrict p = block.parameters;
  const float* __restrict g = block.gradients;
  float* __restrict m = block.states[0];
  const float keep = block.decay ? f.keep : 1;
  for (int64_t i = 0; i < block.n; ++i) {
    const float change = g[i] - m[i];
    const float c = m[i] + f.weight1 * change;
    // Zero has no sign, so padding stays zero.
    const float sign = static_cast<float>(static_cast<int>(c > 0) - static_cast<int>(c < 0));
    p[i] = p[i] * keep - f.lr * sign;
    m[i] += f.weight2 * change;
  }
}

class Lion : public zerolab::Optimizer {
 public:
  struct Options {
    std::vector<double> betas = {0.9, 0.99};
    double weight_decay = 0;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("betas", &Options::betas,
              "how much of the running average counts in a step, and how much of it stays")
          .length(2)
          .at_least(0)
          .below(1);
      d.field("weight_decay", &Options::weight_decay,
              "decoupled, times lr; for parameters of two dimensions or more")
          .at_least(0);
    }
  };
  explicit Lion(const Options& options) : options_(options) {}

  std::vector<std::string> state_names() const override { return {"exp_avg"}; }
  bool takes_low_precision() const override { return true; }

  void update(std::span<zerolab::OptimizerRange> ranges, const zerolab::UpdateStep& step) override {
    const Factors factors = {.keep = static_cast<float>(1 - step.lr * options_.weight_decay),
                             .weight1 = static_cast<float>(1 - options_.betas[0]),
                             .weight2 = static_cast<float>(1 - options_.betas[1]),
                             .lr = static_cast<float>(step.lr)};
    zerolab::update_in_blocks(
        ranges, step, [&](const zerolab::UpdateBlock& block) { update_block(block, factors); });
  }

 private:
  Options options_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Lion>("optimizer/lion", "1.0.0",
                                    "the sign of a running average, decoupled weight decay",
                                    "https://arxiv.org/abs/2302.06675"));
