// ZeRO stage 2: optimizer states and gradients are sharded. A bucket of gradients lives from its
// first gradient to its reduction; only the owned slices stay. Fp32: 4 + 12/N bytes a parameter;
// moved: 2P(N-1)/N elements a step of one
// micro-batch, (A+1)P(N-1)/N with A that are reduced one by one. Source: Rajbhandari et al., arXiv
// 1910.02054, section 5.2.

#include <optional>

#include "zerolab/flat.h"
#include "zerolab/gradient_reducer.h"
#include "zerolab/optimizer_shard.h"
#include "zerolab/plugin.h"
#include "zerolab/sharding.h"

namespace {

class Zero2 : public zerolab::Sharding {
 public:
  struct Options {
    int64_t reduce_bucket_size = zerolab::kDefaultBucketElements;
    static void describe(zerolab::Describe<Options>& d) {
      d.field("reduce_bucket_size", &Options::reduce_bucket_size,
              "gradients reduced in one collective")
          .unit("elements")
          .size()
          .at_least(1)
          .keeps_results();
    }
  };
  explicit Zero2(const Options& options) : options_(options) {}

  void attach(const zerolab::ShardingContext& context) override {
    world_ = &context.world;
    parameters_ = &context.parameters;
    layout_.emplace(context.parameters, world_->size(), options_.reduce_bucket_size);
    flat_.allocate(context.parameters, *layout_, context.seed);
    reducer_.emplace(
        context.parameters, *layout_, *world_,
        zerolab::ReducerTraits{.keep_full = false, .reduce_every = context.reduce_every});
    optimizer_.allocate(*layout_, world_->rank(), flat_.flat(), context.optimizer);
  }
  void begin_micro_batch(bool last) override { reducer_->begin_micro_batch(last); }
  void end_micro_batch() override { reducer_->end_micro_batch(); }
  zerolab::GradientNorm gradient_norm() override { return reducer_->norm(); }
  void update(const zerolab::UpdateStep& step) override {
    optimizer_.update(
        [this](const zerolab::FlatRange& range) { return reducer_->gradients(range); }, step);
    flat_.publish(*layout_, *world_);
    reducer_->release();
  }
  void discard() override { reducer_->release(); }
  std::vector<zerolab::StatePiece> state() override { return optimizer_.pieces(*parameters_); }
  zerolab::HeldBytes held_bytes() const override {
    return {flat_.bytes(), reducer_->gradient_bytes(), optimizer_.bytes(),
            reducer_->bucket_bytes()};
  }

 private:
  Options options_;
  zerolab::Communicator* world_ = nullptr;
  zerolab::Parameters* parameters_ = nullptr;
  std::optional<zerolab::FlatLayout> layout_;
  zerolab::FlatParameters flat_;
  zerolab::OptimizerShard optimizer_;
  std::optional<zerolab::GradientReducer> reducer_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Zero2>("sharding/zero2", "1.0.0",
                                     "ZeRO-2: optimizer states and gradients sharded"));
