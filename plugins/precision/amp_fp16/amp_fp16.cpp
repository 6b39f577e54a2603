// Parameters and gradients in float32; matrix products in float16 through autocast. float16 ends
// at 65504 and at 6e-8, so a dynamic scale keeps gradients in between.
// Source: Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740.

#include "zerolab/plugin.h"
#include "zerolab/scaled_precision.h"

namespace {

struct AmpFp16 : zerolab::ScaledPrecision {
  struct Options : zerolab::ScaledPrecisionOptions {
    static void describe(zerolab::Describe<Options>& d) {
      describe_into(d, {"fp32", "bf16", "fp16"});
    }
  };
  explicit AmpFp16(const Options& options)
      : ScaledPrecision({.parameter_dtype = at::kFloat,
                         .gradient_dtype = options.dtype(),
                         .autocast_dtype = at::kHalf},
                        options) {}
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<AmpFp16>(
    "precision/amp_fp16", "1.0.0",
    "float32 parameters and gradients, compute autocast to float16, dynamic loss scale",
    "https://arxiv.org/abs/1710.03740"));
