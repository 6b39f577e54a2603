// Distributed data parallel: everything is replicated; gradients are summed over ranks (reduced
// to owners, then gathered, so that the order of addition is that of every other strategy) and
// each rank makes the whole update. Fp32: 16 bytes a parameter; moved: 2P(N-1)/N elements a step
// of one micro-batch, (A+1)P(N-1)/N with A that are reduced one by one.
// Source: Li et al., "PyTorch Distributed", arXiv 2006.15704.

#include "zerolab/flat_sharding.h"
#include "zerolab/plugin.h"

namespace {

class Ddp : public zerolab::FlatSharding {
 public:
  struct Options : zerolab::FlatOptions {
    static void describe(zerolab::Describe<Options>& d) { describe_into(d); }
  };
  explicit Ddp(const Options& options) : FlatSharding(zerolab::ZeroStage::kNone, {options}) {}
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Ddp>("sharding/ddp", "1.1.0",
                                   "data parallel: everything replicated"));
