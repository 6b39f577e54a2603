// Parameters and compute in float16; float32 masters and optimizer states with who owns them.
// float16 ends at 65504 and at 6e-8, so a dynamic scale keeps gradients in between.
// Source: Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740.

#include "zerolab/plugin.h"
#include "zerolab/scaled_precision.h"

namespace {

struct Fp16 : zerolab::ScaledPrecision {
  struct Options : zerolab::ScaledPrecisionOptions {
    static void describe(zerolab::Describe<Options>& d) {
      describe_into(d, {"fp32", "bf16", "fp16"});
    }
  };
  explicit Fp16(const Options& options)
      : ScaledPrecision({.parameter_dtype = at::kHalf,
                         .gradient_dtype = options.dtype(),
                         .autocast_dtype = std::nullopt},
                        options) {}
};

}  // namespace

ZEROLAB_PLUGIN(
    zerolab::entry<Fp16>("precision/fp16", "1.0.0",
                         "float16 parameters and compute, float32 masters, dynamic loss scale",
                         "https://arxiv.org/abs/1710.03740"));
