// Everything in float32: parameters, compute and gradients, unless told otherwise of the last.

#include "zerolab/gradient_dtype.h"
#include "zerolab/plugin.h"
#include "zerolab/precision.h"

namespace {

class Fp32 : public zerolab::Precision {
 public:
  struct Options : zerolab::GradientDtypeOptions {
    static void describe(zerolab::Describe<Options>& d) {
      zerolab::GradientDtypeOptions::describe_into(d, {"fp32", "bf16"});
    }
  };
  explicit Fp32(const Options& options) : options_(options) {}

  zerolab::PrecisionPolicy policy() const override {
    return {.parameter_dtype = at::kFloat,
            .gradient_dtype = options_.dtype(),
            .autocast_dtype = std::nullopt};
  }

 private:
  Options options_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Fp32>("precision/fp32", "1.1.0", "everything in float32"));
