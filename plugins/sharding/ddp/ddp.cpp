// Distributed data parallel: everything is replicated; gradients are summed over ranks (reduced
// to owners, then gathered, so that the order of addition is that of every other strategy) and
// each rank makes the whole update. Fp32: 16 bytes a parameter; moved: 2P(N-1)/N elements a step
// of one micro-batch, (A+1)P(N-1)/N with A that are reduced one by one.
// Source: Li et al., "PyTorch Distributed", arXiv 2006.15704.

#include <optional>

#include "zerolab/flat_state.h"
#include "zerolab/plugin.h"
#include "zerolab/sharding.h"

namespace {

class Ddp : public zerolab::Sharding {
 public:
  using Options = zerolab::BucketOptions;
  explicit Ddp(const Options& options) : options_(options) {}

  void attach(const zerolab::ShardingContext& context) override {
    constexpr bool kKeepFullGradients = true;
    state_.emplace(context, options_, kKeepFullGradients, zerolab::Ownership::kReplicated);
  }
  void begin_micro_batch(bool last) override { state_->reducer().begin_micro_batch(last); }
  void end_micro_batch() override { state_->reducer().end_micro_batch(); }
  zerolab::GradientNorm gradient_norm() override { return state_->reducer().norm(); }
  void update(const zerolab::UpdateStep& step) override {
    state_->publish_gradients();
    state_->update_owned(step);
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

ZEROLAB_PLUGIN(zerolab::entry<Ddp>("sharding/ddp", "1.0.0",
                                   "data parallel: everything replicated"));
