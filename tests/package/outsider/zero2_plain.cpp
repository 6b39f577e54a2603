// ZeRO-2 without buckets: when backward is over, one reduce-scatter of all gradients leaves each
// rank the sum of its slice, which it keeps over micro-batches, updates with and sends. Nothing is
// hidden behind backward, and two tensors as long as the model are needed on the way: that is what
// buckets are for. Sums follow the trees over ranks and micro-batches of gradient_reducer.h.

#include <bit>
#include <limits>
#include <optional>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "zerolab/bucket_gather.h"
#include "zerolab/flat.h"
#include "zerolab/flat_parameters.h"
#include "zerolab/optimizer_shard.h"
#include "zerolab/plugin.h"
#include "zerolab/sharding.h"

class Zero2Plain : public zerolab::Sharding {
 public:
  using Options = zerolab::NoOptions;
  explicit Zero2Plain(const Options&) {}

  void attach(const zerolab::ShardingContext& context) override {
    parameters_ = &context.parameters;
    world_ = &context.world;
    each_micro_batch_ = context.reduce_every == zerolab::ReduceEvery::kMicroBatch;
    layout_.emplace(*parameters_, one_bucket(world_->size()));
    flat_.allocate(*parameters_, *layout_, context.seed);
    all_ = at::zeros({layout_->length()});
    received_ = at::empty_like(all_);
    sum_ = at::zeros({layout_->shard_length()});
    const auto masters = [this](int64_t flat_offset, int64_t, int64_t length) {
      return flat_.flat().narrow(0, flat_offset, length);
    };
    optimizer_.allocate(*layout_, world_->rank(), masters, context.optimizer);
  }

  void begin_micro_batch(bool last) override { last_ = last; }
  void end_micro_batch() override {
    if (last_ || each_micro_batch_) {  // until then autograd adds micro-batches in .grad
      reduce();
      if (each_micro_batch_) add_earlier();
    }
    ++micro_batch_;
  }
  zerolab::GradientNorm gradient_norm() override { return zerolab::gradient_norm({sum_}, *world_); }
  void update(const zerolab::UpdateStep& step) override {
    const auto gradients = [this](const zerolab::FlatRange& range) {
      return sum_.narrow(0, range.owned_offset, range.length);
    };
    optimizer_.update(gradients, step);
    state_restored();
    discard();
  }
  void state_restored() override { flat_.publish(*world_); }
  void discard() override { micro_batch_ = 0; }
  std::vector<zerolab::StatePiece> state() override { return optimizer_.pieces(*parameters_); }
  zerolab::HeldBytes held_bytes() const override {
    return {.parameters = flat_.bytes(),
            .gradients = 4 * sum_.numel() * (1 + static_cast<int64_t>(earlier_.size())),
            .optimizer = optimizer_.bytes(),
            .buckets = 4 * (all_.numel() + received_.numel()) + flat_.buffer_bytes()};
  }
  std::optional<zerolab::Footprint> footprint(
      const zerolab::FootprintRequest& request) const override {
    if (request.precision.parameter_dtype != at::kFloat) return std::nullopt;
    const zerolab::FlatLayout layout(request.parameters, one_bucket(request.num_ranks));
    const int64_t all = 4 * layout.length(), shard = 4 * layout.shard_length();
    const bool each = request.reduce_every == zerolab::ReduceEvery::kMicroBatch;
    const auto before_last = static_cast<uint64_t>(request.micro_batches - 1);
    zerolab::Footprint f;
    f.held = {.parameters = all + 4 * zerolab::frozen_length(request.parameters),
              .gradients = shard * (1 + (each ? std::bit_width(before_last) : 0)),
              .optimizer = shard * request.num_states,
              .buckets = 2 * all};
    zerolab::BucketGather::predict(layout, {}, 0, layout.buckets().size(), 4, 1, f);
    if (request.num_ranks > 1)
      f.of(zerolab::CollectiveKind::kReduceScatter)
          .add(each ? request.micro_batches : 1, all - shard);
    return f;
  }

 private:
  static zerolab::LayoutRules one_bucket(int num_ranks) {
    return {.num_ranks = num_ranks, .bucket_elements = std::numeric_limits<int64_t>::max()};
  }
  void reduce() {
    for (const zerolab::Slot& slot : layout_->slots()) {
      at::Tensor& gradient = parameters_->tensor(slot.parameter).mutable_grad();
      const at::Tensor to = all_.narrow(0, slot.offset, slot.numel);
      gradient.defined() ? to.copy_(gradient.flatten()) : to.zero_();
      gradient.reset();
    }
    world_->reduce_scatter(sum_, all_, "all gradients", received_)->wait();
  }
  /// A binary counter: earlier_[k] holds the sum of 2^k micro-batches where bit k is set.
  void add_earlier() {
    size_t k = 0;
    for (int64_t m = micro_batch_; last_ ? m > 0 : (m & 1) == 1; m >>= 1, ++k)
      if (m & 1) sum_.add_(earlier_[k]);
    if (last_) return;
    if (k == earlier_.size()) earlier_.push_back(at::empty_like(sum_));
    earlier_[k].copy_(sum_);
  }

  zerolab::Parameters* parameters_ = nullptr;
  zerolab::Communicator* world_ = nullptr;
  std::optional<zerolab::FlatLayout> layout_;
  zerolab::FlatParameters flat_;
  zerolab::OptimizerShard optimizer_;
  at::Tensor all_, received_, sum_;
  std::vector<at::Tensor> earlier_;
  bool each_micro_batch_ = true, last_ = true;
  int64_t micro_batch_ = 0;
};

ZEROLAB_PLUGIN(zerolab::entry<Zero2Plain>("sharding/zero2_plain", "0.1.0", "ZeRO-2, no buckets"));
