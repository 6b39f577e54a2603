#pragma once
// A strategy that does nothing: what a test of something else fills in where it matters.

#include <vector>

#include "zerolab/sharding.h"

class IdleSharding : public zerolab::Sharding {
 public:
  void attach(const zerolab::ShardingContext&) override {}
  void begin_micro_batch(bool) override {}
  void end_micro_batch() override {}
  zerolab::GradientNorm gradient_norm() override { return {}; }
  void update(const zerolab::UpdateStep&) override {}
  void discard() override {}
  std::vector<zerolab::StatePiece> state() override { return {}; }
  zerolab::HeldBytes held_bytes() const override { return {}; }
};
