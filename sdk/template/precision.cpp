// Everything in float32, or matrix products in bfloat16 if asked. The contract is in
// zerolab/precision.h.

#include "zerolab/precision.h"

#include "zerolab/plugin.h"

namespace {

class MyPrecision : public zerolab::Precision {
 public:
  struct Options {
    bool autocast = false;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("autocast", &Options::autocast, "compute matrix products in bfloat16");
    }
  };
  explicit MyPrecision(const Options& options) {
    if (options.autocast) policy_.autocast_dtype = at::kBFloat16;
  }
  zerolab::PrecisionPolicy policy() const override { return policy_; }

 private:
  zerolab::PrecisionPolicy policy_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<MyPrecision>("precision/my_precision", "0.1.0",
                                           "float32, bfloat16 products if asked"));
