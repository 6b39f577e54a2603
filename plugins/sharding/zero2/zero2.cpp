// ZeRO stage 2: optimizer states and gradients are sharded. A gradient lives until its bucket is
// sent; only the owned slices stay. Fp32: 4 + 12/N bytes a parameter; moved: 2P(N-1)/N elements a
// step of one micro-batch, (A+1)P(N-1)/N with A that are reduced one by one.
// Source: Rajbhandari et al., arXiv 1910.02054, section 5.2.

#include "zerolab/flat_sharding.h"
#include "zerolab/plugin.h"

namespace {

class Zero2 : public zerolab::FlatSharding {
 public:
  struct Options : zerolab::FlatOptions {
    static void describe(zerolab::Describe<Options>& d) { describe_into(d); }
  };
  explicit Zero2(const Options& options)
      : FlatSharding(zerolab::ZeroStage::kGradients, {options}) {}
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Zero2>("sharding/zero2", "1.1.0",
                                     "ZeRO-2: optimizer states and gradients sharded"));
