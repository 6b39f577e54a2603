// Hybrid sharding: sharded in groups of shard_size neighbouring ranks, replicated across groups.
// Gradients are reduced to their owners inside a group, then over the groups among the owners of
// the same slices; parameters are gathered inside the group alone. With groups of a power of two
// this is the tree of every other strategy: ranks r0 + r1, then groups. Bytes held as those of
// the stage with S = shard_size instead of N; moved across groups: 2(P/S)(G-1)/G elements for each
// reduced micro-batch, with G = N/S groups. The sum over groups is waited for bucket by bucket:
// overlap_comm hides what goes on inside a group.
// Source: Zhao et al., "PyTorch FSDP", arXiv 2304.11277, section 3.2.2.

#include <algorithm>
#include <string>

#include "zerolab/error.h"
#include "zerolab/flat_sharding.h"
#include "zerolab/plugin.h"

namespace {

/// GPUs of a usual machine: groups do not cross machines unless told so.
constexpr int kUsualMachine = 8;

class Hsdp : public zerolab::FlatSharding {
 public:
  struct Options : zerolab::ShardedParameterOptions {
    int64_t shard_size = 0;
    int64_t stage = 3;
    static void describe(zerolab::Describe<Options>& d) {
      describe_into(d);
      d.field("shard_size", &Options::shard_size,
              "ranks of a group; 0: the largest power of two that divides the ranks into at least "
              "two groups of at most 8")
          .unit("ranks")
          .at_least(0)
          .at_most(1 << 20)
          .keeps_results();
      d.field("stage", &Options::stage,
              "of ZeRO inside a group: 1 shards optimizer states, 2 gradients, 3 parameters, too")
          .at_least(1)
          .at_most(3)
          .keeps_results();
    }
  };
  explicit Hsdp(const Options& options)
      : FlatSharding(static_cast<zerolab::ZeroStage>(options.stage), options),
        shard_size_(static_cast<int>(options.shard_size)) {}

 protected:
  int shard_size(int num_ranks) const override {
    if (shard_size_ == 0) {
      int size = 1;
      while (num_ranks % (size * 2) == 0 && size * 4 <= num_ranks && size < kUsualMachine)
        size *= 2;
      return size;
    }
    const std::string given = "key 'sharding.shard_size': " + std::to_string(shard_size_);
    if (num_ranks % shard_size_ != 0) {
      throw zerolab::ConfigError(given + " does not divide the " + std::to_string(num_ranks) +
                                 " ranks into groups; choose a divisor of them, or 0.");
    }
    const bool power_of_two = (shard_size_ & (shard_size_ - 1)) == 0;
    if (!power_of_two && shard_size_ != num_ranks) {
      throw zerolab::ConfigError(given +
                                 " would add gradients in another order than the other strategies "
                                 "do; choose a power of two, or all ranks.");
    }
    return shard_size_;
  }

 private:
  int shard_size_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Hsdp>("sharding/hsdp", "1.0.0",
                                    "hybrid: sharded in groups of ranks, replicated across them"));
