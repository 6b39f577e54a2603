// Parameters and compute in bfloat16 with float32 masters, as precision/bf16, and a dynamic loss
// scale. bfloat16 hardly needs one; it is for comparing with float16 step by step, and for losses
// whose gradients leave float32's range.
// Source: Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740.

#include <map>
#include <string>

#include "zerolab/gradient_dtype.h"
#include "zerolab/loss_scaler.h"
#include "zerolab/plugin.h"
#include "zerolab/precision.h"

namespace {

class Bf16Scaled : public zerolab::Precision {
 public:
  struct Options : zerolab::GradientDtypeOptions, zerolab::LossScalerOptions {
    static void describe(zerolab::Describe<Options>& d) {
      zerolab::GradientDtypeOptions::describe_into(d, {"fp32", "bf16"});
      zerolab::LossScalerOptions::describe_into(d);
    }
  };
  explicit Bf16Scaled(const Options& options) : options_(options), scaler_(options) {}

  zerolab::PrecisionPolicy policy() const override {
    return {.parameter_dtype = at::kBFloat16,
            .gradient_dtype = options_.dtype(),
            .autocast_dtype = std::nullopt};
  }
  double loss_scale() const override { return scaler_.scale(); }
  void observe(bool finite) override { scaler_.update(finite); }
  std::map<std::string, double> state() const override { return scaler_.state(); }
  void restore(const std::map<std::string, double>& state) override { scaler_.restore(state); }

 private:
  Options options_;
  zerolab::DynamicLossScaler scaler_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Bf16Scaled>(
    "precision/bf16_scaled", "1.0.0",
    "bfloat16 parameters and compute, float32 masters, dynamic loss scale",
    "https://arxiv.org/abs/1710.03740"));
