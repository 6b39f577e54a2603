// ZeRO stage 1: optimizer states are sharded. Each rank reduces whole gradients to their owners,
// updates the slices that it owns, and gathers the parameters. Fp32: 8 + 8/N bytes a parameter;
// moved: 2P(N-1)/N elements a step of one micro-batch, (A+1)P(N-1)/N with A that are reduced one
// by one.
// Source: Rajbhandari et al., arXiv 1910.02054, section 5.1.

#include <optional>

#include "zerolab/flat_state.h"
#include "zerolab/plugin.h"
#include "zerolab/sharding.h"

namespace {

class Zero1 : public zerolab::Sharding {
 public:
  using Options = zerolab::BucketOptions;
  explicit Zero1(const Options& options) : options_(options) {}

  void attach(const zerolab::ShardingContext& context) override {
    constexpr bool kKeepFullGradients = true;
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

ZEROLAB_PLUGIN(zerolab::entry<Zero1>("sharding/zero1", "1.0.0",
                                     "ZeRO-1: optimizer states sharded"));
