// Parameters and compute in bfloat16; float32 masters and optimizer states with who owns them.
// bfloat16 has float32's exponent, so the loss needs no scaling.
// Source: Kalamkar et al., "A Study of BFLOAT16 for Deep Learning Training", arXiv 1905.12322.

#include "zerolab/gradient_dtype.h"
#include "zerolab/plugin.h"
#include "zerolab/precision.h"

namespace {

class Bf16 : public zerolab::Precision {
 public:
  struct Options : zerolab::GradientDtypeOptions {
    static void describe(zerolab::Describe<Options>& d) {
      zerolab::GradientDtypeOptions::describe_into(d, {"fp32", "bf16"});
    }
  };
  explicit Bf16(const Options& options) : options_(options) {}

  zerolab::PrecisionPolicy policy() const override {
    return {.parameter_dtype = at::kBFloat16,
            .gradient_dtype = options_.dtype(),
            .autocast_dtype = std::nullopt};
  }

 private:
  Options options_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Bf16>("precision/bf16", "1.0.0",
                                    "bfloat16 parameters and compute, float32 masters",
                                    "https://arxiv.org/abs/1905.12322"));
