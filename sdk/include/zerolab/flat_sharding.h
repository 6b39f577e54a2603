#pragma once
// The strategies over flat space: which of optimizer states, gradients and parameters are sharded,
// and among whom. ddp, ZeRO-1, 2, 3 and hsdp are this class with different answers; a strategy of
// another kind takes the parts instead (FlatLayout, GradientReducer, FlatParameters or
// UnitParameters, OptimizerShard).
//
// Whatever the answers, gradients are reduced to owners along the same tree and updates are
// elementwise: losses, norms, parameters and states have the same bits with the fp32 wire. (With a
// wire that rounds, bucket and group sizes decide where its blocks begin.)
//
// With S owners and N / S groups of them, bytes a parameter with two states:
//   float32     16 bits, gradients too    16 bits, float32 gradients
//   16          16                        18             nothing is sharded
//   8 + 8/S     4 + 12/S                  6 + 12/S       the optimizer states (and masters)
//   4 + 12/S    2 + 14/S                  2 + 16/S       and the gradients
//   16/S        16/S                      18/S           and the parameters
// Source: Rajbhandari et al., arXiv 1910.02054; Zhao et al., arXiv 2304.11277 (hybrid sharding).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zerolab/bucket_gather.h"
#include "zerolab/export.h"
#include "zerolab/flat.h"
#include "zerolab/flat_parameters.h"
#include "zerolab/gradient_reducer.h"
#include "zerolab/optimizer_shard.h"
#include "zerolab/options.h"
#include "zerolab/sharding.h"
#include "zerolab/unit_parameters.h"

namespace zerolab {

/// Options of every strategy over flat space, by the names that DeepSpeed and PyTorch give them.
struct ZEROLAB_API FlatOptions {
  int64_t reduce_bucket_size = kDefaultBucketElements;
  int64_t allgather_bucket_size = kDefaultGatherElements;
  bool overlap_comm = true;
  bool find_unused_parameters = false;
  std::string wire_dtype = "fp32";
  bool wire_error_feedback = false;
  std::string offload = "none";

  /// Describes the fields above; for the describe() of a struct that derives from this.
  template <class Options>
  static void describe_into(Describe<Options>& d);
  void check(Problems& problems) const;
};

/// Further options where parameters are sharded.
struct ZEROLAB_API ShardedParameterOptions : FlatOptions {
  bool reshard_after_forward = true;
  int64_t param_persistence_threshold = 0;

  template <class Options>
  static void describe_into(Describe<Options>& d);
};

/// What is sharded; each stage of ZeRO has all that the one before it has.
enum class ZeroStage { kNone = 0, kOptimizer = 1, kGradients = 2, kParameters = 3 };

class ZEROLAB_API FlatSharding : public Sharding {
 public:
  FlatSharding(ZeroStage stage, const ShardedParameterOptions& options);
  ~FlatSharding() override;

  void check_ranks(int num_ranks) const override;
  void attach(const ShardingContext& context) override;
  void begin_micro_batch(bool last) override { reducer_->begin_micro_batch(last); }
  void end_micro_batch() override { reducer_->end_micro_batch(); }
  GradientNorm gradient_norm() override { return reducer_->norm(); }
  void update(const UpdateStep& step) override;
  void discard() override { reducer_->discard(); }
  std::vector<StatePiece> state() override { return optimizer_.pieces(*declared_); }
  std::vector<LocalState> local_state() override;
  void state_restored() override;
  HeldBytes held_bytes() const override;
  std::optional<Footprint> footprint(const FootprintRequest& request) const override;
  double loss_tolerance() const override;

  void begin_pass(bool training) override;
  void before_forward(int unit) override;
  void after_forward(int unit) override;
  void before_backward(int unit) override;
  void after_backward(int unit) override;
  void end_pass() override;

 protected:
  /// Ranks that share one set of shards, contiguous; at least 1, a divisor of `num_ranks`. All of
  /// them unless told otherwise. Errors: ConfigError if the ranks cannot be grouped as the options
  /// say.
  virtual int shard_size(int num_ranks) const { return num_ranks; }

 private:
  bool parameters_sharded(int owners) const;
  LayoutRules layout_rules(int num_ranks) const;
  ReducerTraits reducer_traits(int owners, ReduceEvery reduce_every,
                               const PrecisionPolicy& precision) const;
  GatherTraits gather_traits(at::ScalarType dtype) const;
  UnitGatherTraits unit_traits(at::ScalarType dtype) const;
  void check_wire(const PrecisionPolicy& precision) const;
  void attach_parameters(const ShardingContext& context, int owner);
  void publish();
  void split_ranks(Communicator& world);

  ZeroStage stage_;
  ShardedParameterOptions options_;
  WireDtype wire_;

  Parameters* declared_ = nullptr;
  std::unique_ptr<Communicator> group_, replicas_;  // null: everyone; no one
  Communicator* owners_ = nullptr;
  std::optional<FlatLayout> layout_;
  std::optional<FlatParameters> whole_;          // parameters whole on every rank,
  std::optional<UnitParameters> sharded_;        // or sharded
  std::optional<BucketGather> gradient_gather_;  // nothing is sharded
  std::optional<GradientReducer> reducer_;
  OptimizerShard optimizer_;
  std::vector<int> open_runs_;  // by unit: forwards of this pass that backward has not left yet
  bool training_ = false;
};

template <class Options>
void FlatOptions::describe_into(Describe<Options>& d) {
  const auto field = [&d]<class T>(const char* name, T FlatOptions::*member, const char* doc) {
    return d.field(name, static_cast<T Options::*>(member), doc);
  };
  field("reduce_bucket_size", &FlatOptions::reduce_bucket_size,
        "gradients reduced in one collective")
      .unit("elements")
      .size()
      .at_least(1)
      .keeps_results();
  field("allgather_bucket_size", &FlatOptions::allgather_bucket_size,
        "parameters gathered at once, in one to four buckets; where parameters are sharded, the "
        "longest unit that is gathered ahead")
      .unit("elements")
      .size()
      .at_least(1)
      .keeps_results();
  field("overlap_comm", &FlatOptions::overlap_comm,
        "communicate while computing; off, each collective is waited for at once")
      .keeps_results();
  field("find_unused_parameters", &FlatOptions::find_unused_parameters,
        "let ranks use different parameters in a step (zero gradients where unused); off, that is "
        "an error. Where parameters are sharded every rank still has to run every unit")
      .keeps_results();
  field("wire_dtype", &FlatOptions::wire_dtype,
        "what gradients and parameters travel as; sums are float32 whatever it is")
      .one_of({"fp32", "bf16", "int8"});
  field("wire_error_feedback", &FlatOptions::wire_error_feedback,
        "add to the next gradient what rounding lost of this one, on the way to its owner; keeps 4 "
        "bytes a parameter");
  field("offload", &FlatOptions::offload,
        "where optimizer states live if the device is a GPU; on a CPU they are on the host anyway")
      .one_of({"none", "host"})
      .keeps_results();
}

template <class Options>
void ShardedParameterOptions::describe_into(Describe<Options>& d) {
  FlatOptions::describe_into(d);
  d.field("reshard_after_forward",
          static_cast<bool Options::*>(&ShardedParameterOptions::reshard_after_forward),
          "free a unit after its forward and gather it again for its backward")
      .keeps_results();
  d.field("param_persistence_threshold",
          static_cast<int64_t Options::*>(&ShardedParameterOptions::param_persistence_threshold),
          "parameters of fewer elements stay whole on every rank")
      .unit("elements")
      .size()
      .at_least(0)
      .keeps_results();
}

}  // namespace zerolab
