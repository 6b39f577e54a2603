#pragma once
// The least scheduler there can be.

#include <cstdint>

#include "zerolab/plugin.h"
#include "zerolab/scheduler.h"

namespace {

class FlatRate : public zerolab::Scheduler {
 public:
  using Options = zerolab::NoOptions;
  explicit FlatRate(const Options&) {}
  void open(const zerolab::SchedulerContext&) override {}
  double lr(int64_t) const override { return 1; }
};

}  // namespace
