// Parameters and compute in float16; float32 masters and optimizer states with who owns them.
// float16 ends at 65504 and at 6e-8, so a dynamic scale keeps gradients in between.
// Source: Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740.

#include <map>
#include <string>

#include "zerolab/gradient_dtype.h"
#include "zerolab/loss_scaler.h"
#include "zerolab/plugin.h"
#include "zerolab/precision.h"

namespace {

class Fp16 : public zerolab::Precision {
 public:
  struct Options : zerolab::GradientDtypeOptions, zerolab::LossScalerOptions {
    static void describe(zerolab::Describe<Options>& d) {
      zerolab::GradientDtypeOptions::describe_into(d, {"fp32", "bf16", "fp16"});
      zerolab::LossScalerOptions::describe_into(d);
    }
  };
  explicit Fp16(const Options& options) : options_(options), scaler_(options) {}

  zerolab::PrecisionPolicy policy() const override {
    return {.parameter_dtype = at::kHalf,
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

ZEROLAB_PLUGIN(
    zerolab::entry<Fp16>("precision/fp16", "1.0.0",
                         "float16 parameters and compute, float32 masters, dynamic loss scale",
                         "https://arxiv.org/abs/1710.03740"));
