// ZeRO stage 2: optimizer states and gradients are sharded. A bucket of gradients lives from its
// first gradient to its reduction; only the owned slices stay. Fp32: 4 + 12/N bytes a parameter;
// moved: 2P(N-1)/N elements a step of one micro-batch, (A+1)P(N-1)/N with A that are reduced one
// by one.
// Source: Rajbhandari et al., arXiv 1910.02054, section 5.2.

#include <optional>

#include "zerolab/flat_state.h"
#include "zerolab/plugin.h"
#include "zerolab/sharding.h"

namespace {

class Zero2 : public zerolab::Sharding {
 public:
  using Options = zerolab::BucketOptions;
  explicit Zero2(const Options& options) : options_(options) {}

  void attach(const zerolab::ShardingContext& context) override {
    constexpr bool kKeepFullGradients = false;
    state_.emplace(context, options_, kKeepFullGradients, zerolab::Ownership::kSharded);
  }
  void begin_micro_batch(bool last) override { state_->reducer().begin_micro_batch(last); }
  void end_micro_batch() override { state_->reducer().end_micro_batch(); }
  zerolab::GradientNorm gradient_norm() override { return state_->reducer().norm(); }
  void update(const zerolab::UpdateStep& step) override {
    state_->update_owned(step);
    state_->publish_parameters();
    state_->reducer().release();
  }
  void discard() override { state_->reducer().release(); }
  std::vector<zerolab::StatePiece> state() override { return state_->pieces(); }
  zerolab::HeldBytes held_bytes() const override { return state_->held_bytes(); }

 private:
  Options options_;
  std::optional<zerolab::FlatState> state_;
};

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Zero2>("sharding/zero2", "1.0.0",
                                     "ZeRO-2: optimizer states and gradients sharded"));
