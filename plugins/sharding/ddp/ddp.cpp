// Distributed data parallel: everything is replicated; gradients are summed over ranks (reduced to
// owners, then gathered, so that the order of addition is that of every other strategy) and each
// rank makes the whole update. Fp32: 16 bytes a parameter; moved: 2P(N-1)/N elements a step
// of one micro-batch, (A+1)P(N-1)/N with A that are reduced one by one.
// Source: Li et al., "PyTorch Distributed", arXiv 2006.15704.

#include <optional>

#include "zerolab/flat.h"
#include "zerolab/gradient_reducer.h"
#include "zerolab/optimizer_shard.h"
#include "zerolab/plugin.h"
#include "zerolab/sharding.h"

namespace {

/// The rank of FlatLayout::ranges that owns all of flat space.
constexpr int kEverything = -1;

class Ddp : public zerolab::Sharding {
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
  explicit Ddp(const Options& options) : options_(options) {}

  void attach(const zerolab::ShardingContext& context) override {
    world_ = &context.world;
    parameters_ = &context.parameters;
    layout_.emplace(context.parameters, world_->size(), options_.reduce_bucket_size);
    flat_.allocate(context.parameters, *layout_, context.seed);
    reducer_.emplace(
        context.parameters, *layout_, *world_,
        zerolab::ReducerTraits{.keep_full = true, .reduce_every = context.reduce_every});
    optimizer_.allocate(*layout_, kEverything, flat_.flat(), context.optimizer);
  }
  void begin_micro_batch(bool last) override { reducer_->begin_micro_batch(last); }
  void end_micro_batch() override { reducer_->end_micro_batch(); }
  zerolab::GradientNorm gradient_norm() override { return reducer_->norm(); }
  void update(const zerolab::UpdateStep& step) override {
    std::vector<std::unique_ptr<zerolab::Work>> gathers;
    for (size_t b = 0; b < layout_->buckets().size(); ++b) {
      gathers.push_back(world_->all_gather(reducer_->full_bucket(b), reducer_->slice(b)));
    }
    for (const auto& gather : gathers) gather->wait();
    optimizer_.update(
        [this](const zerolab::FlatRange& range) { return reducer_->gradients(range); }, step);
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

ZEROLAB_PLUGIN(zerolab::entry<Ddp>("sharding/ddp", "1.0.0",
                                   "data parallel: everything replicated"));
