#pragma once
// A strategy that does what another one does: what a test changes of it, it overrides.

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "zerolab/sharding.h"

class WrappedSharding : public zerolab::Sharding {
 public:
  explicit WrappedSharding(std::unique_ptr<zerolab::Sharding> inner) : inner_(std::move(inner)) {}

  void check_ranks(int num_ranks) const override { inner_->check_ranks(num_ranks); }
  void attach(const zerolab::ShardingContext& context) override { inner_->attach(context); }
  void begin_micro_batch(bool last) override { inner_->begin_micro_batch(last); }
  void end_micro_batch() override { inner_->end_micro_batch(); }
  zerolab::GradientNorm gradient_norm() override { return inner_->gradient_norm(); }
  void update(const zerolab::UpdateStep& step) override { inner_->update(step); }
  void discard() override { inner_->discard(); }
  void synchronize() override { inner_->synchronize(); }
  std::vector<zerolab::StatePiece> state() override { return inner_->state(); }
  std::vector<zerolab::LocalState> local_state() override { return inner_->local_state(); }
  void state_restored() override { inner_->state_restored(); }
  zerolab::HeldBytes held_bytes() const override { return inner_->held_bytes(); }
  std::optional<zerolab::Footprint> footprint(
      const zerolab::FootprintRequest& request) const override {
    return inner_->footprint(request);
  }
  double loss_tolerance() const override { return inner_->loss_tolerance(); }

  void begin_pass(bool training) override { inner_->begin_pass(training); }
  void before_forward(int unit) override { inner_->before_forward(unit); }
  void after_forward(int unit) override { inner_->after_forward(unit); }
  void before_backward(int unit) override { inner_->before_backward(unit); }
  void after_backward(int unit) override { inner_->after_backward(unit); }
  void end_pass() override { inner_->end_pass(); }

 private:
  std::unique_ptr<zerolab::Sharding> inner_;
};
