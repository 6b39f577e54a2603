// Gradient descent with momentum. Formula, with t the number of the update:
//   g <- g + weight_decay * p                                          (ranges that decay)
//   m <- g                                                             (t = 1)
//   m <- momentum * m + (1 - dampening) * g                            (t > 1)
//   p <- p - lr * m;  with nesterov: p - lr * (g + momentum * m);  without momentum: p - lr * g
// Source: Sutskever et al., "On the importance of initialization and momentum in deep learning",
// ICML 2013, sections 2 and 3.
// Deviates: lr is outside of the momentum, and the first update is not dampened, as in PyTorch.

#include <vector>

#include "zerolab/fused_update.h"
#include "zerolab/optimizer.h"
#include "zerolab/plugin.h"
#include "zerolab/vector_clones.h"

namespace {

/// What is the same for all elements of an update.
struct Factors {
  float weight_decay;
  float old_weight, new_weight;       // m <- old_weight * m + new_weight * g
  float gradient_rate, average_rate;  // p <- p - gradient_rate * g - average_rate * m
};

ZEROLAB_VECTOR_CLONES void update_plain(const zerolab::UpdateBlock& block, const Factors& f) {
  float* __restrict p = block.parameters;
  const float* __restrict gradients = block.gradients;
  const float weight_decay = block.decay ? f.weight_decay : 0;
  for (int64_t i = 0; i < block.n; ++i) {
    p[i] -= f.gradient_rate * (gradients[i] + weight_decay * p[i]);
  }
}

ZEROLAB_VECTOR_CLONES void update_momentum(const zerolab::UpdateBlock& block, const Factors& f) {
  float* __restrict p = block.parameters;
  const float* __restrict gradients = block.gradients;
  float* __restrict m = block.states[0];
  const float weight_decay = block.decay ? f.weight_decay : 0;
  for (int64_t i = 0; i < block.n; ++i) {
    const float g = gradients[i] + weight_decay * p[i];
    m[i] = f.old_weight * m[i] + f.new_weight * g;
    p[i] -= f.gradient_rate * g + f.average_rate * m[i];
  }
}

class Sgd : public zerolab::Optimizer {
 public:
  struct Options {
    double momentum = 0;
    double dampening = 0;
    bool nesterov = false;
    double weight_decay = 0;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("momentum", &Options::momentum,
              "how much of the last step stays; 0 keeps no state at all")
          .at_least(0)
          .below(1);
      d.field("dampening", &Options::dampening, "how much less a new gradient adds to the momentum")
          .at_least(0)
          .at_most(1);
      d.field("nesterov", &Options::nesterov, "look ahead by one step of the momentum");
      d.field("weight_decay", &Options::weight_decay,
              "L2: times the parameter, added to the gradient; for parameters of two dimensions "
              "or more")
          .at_least(0);
    }
    void check(zerolab::Problems& problems) const {
      if (dampening != 0 && momentum == 0) problems.add("dampening", "needs a momentum above 0");
      if (nesterov && momentum == 0) problems.add("nesterov", "needs a momentum above 0");
      if (nesterov && dampening != 0) problems.add("nesterov", "needs a dampening of 0");
    }
  };
  explicit Sgd(const Options& options) : options_(options) {}

  std::vector<std::string> state_names() const override {
    if (options_.momentum == 0) return {};
    return {"momentum_buffer"};
  }
  bool takes_low_precision() const override { return true; }

  void update(std::span<zerolab::OptimizerRange> ranges, const zerolab::UpdateStep& step) override {
    const bool first = step.step == 1, has_average = options_.momentum > 0;
    const bool uses_gradient = options_.nesterov || !has_average;
    const double average_rate = options_.nesterov ? step.lr * options_.momentum : step.lr;
    const Factors factors = {
        .weight_decay = static_cast<float>(options_.weight_decay),
        .old_weight = static_cast<float>(options_.momentum),  // of zero, at first
        .new_weight = first ? 1 : static_cast<float>(1 - options_.dampening),
        .gradient_rate = uses_gradient ? static_cast<float>(step.lr) : 0,
        .average_rate = static_cast<float>(average_rate)};
    zerolab::update_in_blocks(ranges, step, [&](const zerolab::UpdateBlock& block) {
      has_average ? update_momentum(block, factors) : update_plain(block, factors);
    });
  }

 private:
  Options options_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Sgd>("optimizer/sgd", "1.0.0",
                                   "gradient descent, with momentum if asked",
                                   "https://proceedings.mlr.press/v28/sutskever13.html"));
