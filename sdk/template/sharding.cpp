// Each rank owns one slice of every bucket: it updates that slice and sends it to the others.
// Optimizer states exist once over all ranks; parameters and gradients are whole on each. The
// contract is in zerolab/sharding.h.

#include "zerolab/sharding.h"

#include <optional>

#include "zerolab/bucket_gather.h"
#include "zerolab/flat.h"
#include "zerolab/flat_parameters.h"
#include "zerolab/gradient_reducer.h"
#include "zerolab/optimizer_shard.h"
#include "zerolab/plugin.h"

namespace {

class MySharding : public zerolab::Sharding {
 public:
  struct Options {
    int64_t bucket_size = 1 << 20;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("bucket_size", &Options::bucket_size, "gradients reduced in one collective")
          .unit("elements")
          .size()
          .at_least(1)
          .keeps_results();
    }
  };
  explicit MySharding(const Options& options) : options_(options) {}

  void attach(const zerolab::ShardingContext& context) override {
    parameters_ = &context.parameters;
    world_ = &context.world;
    layout_.emplace(context.parameters, rules(world_->size()));
    flat_.allocate(context.parameters, *layout_, context.seed);
    reducer_.emplace(context.parameters, *layout_, *world_, traits(context.reduce_every));
    const auto masters = [this](int64_t flat_offset, int64_t, int64_t length) {
      return flat_.flat().narrow(0, flat_offset, length);
    };
    optimizer_.allocate(*layout_, world_->rank(), masters, context.optimizer);
  }
  void begin_micro_batch(bool last) override { reducer_->begin_micro_batch(last); }
  void end_micro_batch() override { reducer_->end_micro_batch(); }
  zerolab::GradientNorm gradient_norm() override { return reducer_->norm(); }
  void update(const zerolab::UpdateStep& step) override {
    optimizer_.update([this](const auto& range) { return reducer_->gradients(range); }, step);
    state_restored();
    reducer_->release();
  }
  void discard() override { reducer_->release(); }
  // Also after a checkpoint was loaded into what state() views.
  void state_restored() override { flat_.publish(*world_); }

  std::vector<zerolab::StatePiece> state() override { return optimizer_.pieces(*parameters_); }
  zerolab::HeldBytes held_bytes() const override {
    return {.parameters = flat_.bytes(),
            .gradients = reducer_->gradient_bytes(),
            .optimizer = optimizer_.bytes(),
            .buckets = reducer_->bucket_bytes()};
  }
  // The same from declarations alone: `zerolab plan` prints it, a run compares it with its counts.
  std::optional<zerolab::Footprint> footprint(
      const zerolab::FootprintRequest& request) const override {
    if (request.precision.parameter_dtype != at::kFloat) return std::nullopt;
    const zerolab::FlatLayout layout(request.parameters, rules(request.num_ranks));
    zerolab::Footprint result;
    result.held.parameters = (layout.length() + zerolab::frozen_length(request.parameters)) * 4;
    result.held.optimizer = layout.shard_length() * request.num_states * 4;
    zerolab::GradientReducer::predict(layout, 1, traits(request.reduce_every),
                                      request.micro_batches, result);
    zerolab::BucketGather::predict(layout, {}, 0, layout.buckets().size(), 4, 1, result);
    return result;
  }

 private:
  zerolab::LayoutRules rules(int num_ranks) const {
    return {.num_ranks = num_ranks, .bucket_elements = options_.bucket_size};
  }
  static zerolab::ReducerTraits traits(zerolab::ReduceEvery reduce_every) {
    return {.keep_full = true, .reduce_every = reduce_every};
  }

  Options options_;
  zerolab::Parameters* parameters_ = nullptr;
  zerolab::Communicator* world_ = nullptr;
  std::optional<zerolab::FlatLayout> layout_;
  zerolab::FlatParameters flat_;
  zerolab::OptimizerShard optimizer_;
  std::optional<zerolab::GradientReducer> reducer_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<MySharding>("sharding/my_sharding", "0.1.0",
                                          "each rank updates its slices and sends them"));
