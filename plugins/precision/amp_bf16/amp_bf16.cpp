// Parameters and gradients in float32; matrix products in bfloat16 through autocast. bfloat16
// has float32's exponent, so the loss needs no scaling.
// Source: Kalamkar et al., "A Study of BFLOAT16 for Deep Learning Training", arXiv 1905.12322.

#include "zerolab/gradient_dtype.h"
#include "zerolab/plugin.h"
#include "zerolab/precision.h"

namespace {

class AmpBf16 : public zerolab::Precision {
 public:
  struct Options : zerolab::GradientDtypeOptions {
    static void describe(zerolab::Describe<Options>& d) {
      zerolab::GradientDtypeOptions::describe_into(d, {"fp32", "bf16"});
    }
  };
  explicit AmpBf16(const Options& options) : options_(options) {}

  zerolab::PrecisionPolicy policy() const override {
    return {.parameter_dtype = at::kFloat,
            .gradient_dtype = options_.dtype(),
            .autocast_dtype = at::kBFloat16};
  }

 private:
  Options options_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<AmpBf16>(
    "precision/amp_bf16", "1.1.0", "float32 parameters and gradients, compute autocast to bfloat16",
    "https://arxiv.org/abs/1905.12322"));
