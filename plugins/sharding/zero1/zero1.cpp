// ZeRO stage 1: optimizer states are sharded. Each rank reduces whole gradients to their owners,
// updates the slices that it owns, and gathers the parameters. Fp32: 8 + 8/N bytes a parameter;
// moved: 2P(N-1)/N elements a step of one micro-batch, (A+1)P(N-1)/N with A that are reduced one
// by one.
// Source: Rajbhandari et al., arXiv 1910.02054, section 5.1.

#include "zerolab/flat_sharding.h"
#include "zerolab/plugin.h"

namespace {

class Zero1 : public zerolab::FlatSharding {
 public:
  struct Options : zerolab::FlatOptions {
    static void describe(zerolab::Describe<Options>& d) { describe_into(d); }
  };
  explicit Zero1(const Options& options)
      : FlatSharding(zerolab::ZeroStage::kOptimizer, {options}) {}
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Zero1>("sharding/zero1", "1.1.0",
                                     "ZeRO-1: optimizer states sharded"));
