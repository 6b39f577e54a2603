// Everything in float32: parameters, compute and gradients.

#include "zerolab/plugin.h"
#include "zerolab/precision.h"

namespace {

class Fp32 : public zerolab::Precision {
 public:
  using Options = zerolab::NoOptions;
  explicit Fp32(const Options&) {}
  zerolab::PrecisionPolicy policy() const override { return {}; }
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Fp32>("precision/fp32", "1.0.0", "everything in float32"));
