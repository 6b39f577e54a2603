// Parameters and compute in bfloat16 with float32 masters, as precision/bf16, and a dynamic loss
// scale. bfloat16 hardly needs one; it is for comparing with float16 step by step, and for losses
// whose gradients leave float32's range.
// Source: Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740.

#include "zerolab/plugin.h"
#include "zerolab/scaled_precision.h"

namespace {

struct Bf16Scaled : zerolab::ScaledPrecision {
  struct Options : zerolab::ScaledPrecisionOptions {
    static void describe(zerolab::Describe<Options>& d) { describe_into(d, {"fp32", "bf16"}); }
  };
  explicit Bf16Scaled(const Options& options)
      : ScaledPrecision({.parameter_dtype = at::kBFloat16,
                         .gradient_dtype = options.dtype(),
                         .autocast_dtype = std::nullopt},
                        options) {}
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Bf16Scaled>(
    "precision/bf16_scaled", "1.0.0",
    "bfloat16 parameters and compute, float32 masters, dynamic loss scale",
    "https://arxiv.org/abs/1710.03740"));
