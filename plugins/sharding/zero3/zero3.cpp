// ZeRO stage 3: parameters are sharded, too. A unit's are gathered before its forward and before
// its backward, the next unit's meanwhile, and freed after; its gradients are sent when its
// backward is done. Fp32: 16/N bytes a parameter and what is gathered; moved: 3P(N-1)/N elements a
// micro-batch (2P for the root unit, which is gathered once, and for all with
// reshard_after_forward = false).
// Source: Rajbhandari et al., arXiv 1910.02054, section 5.3.

#include "zerolab/flat_sharding.h"
#include "zerolab/plugin.h"

namespace {

class Zero3 : public zerolab::FlatSharding {
 public:
  struct Options : zerolab::ShardedParameterOptions {
    static void describe(zerolab::Describe<Options>& d) { describe_into(d); }
  };
  explicit Zero3(const Options& options)
      : FlatSharding(zerolab::ZeroStage::kParameters, {options}) {}
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Zero3>("sharding/zero3", "1.1.0", "ZeRO-3: parameters sharded, too"));
