#pragma once
// Predicted bytes of a strategy, in the categories in which they are counted.
// Source: the categories are those of Rajbhandari et al., arXiv 1910.02054, section 3.

#include <array>
#include <cstdint>

#include "zerolab/communicator.h"
#include "zerolab/state.h"

namespace zerolab {

struct CollectiveTraffic {
  int64_t calls = 0;
  int64_t bytes = 0;  ///< payload that one rank sends to others
  void add(int64_t n, int64_t bytes_each) {
    calls += n;
    bytes += n * bytes_each;
  }
};

/// Predicted bytes of each rank: held, and moved in one step with an update.
struct Footprint {
  HeldBytes held;
  std::array<CollectiveTraffic, kNumCollectiveKinds> moved{};  ///< by CollectiveKind; no control
  CollectiveTraffic& of(CollectiveKind kind) { return moved[static_cast<size_t>(kind)]; }
  const CollectiveTraffic& of(CollectiveKind kind) const {
    return moved[static_cast<size_t>(kind)];
  }
  int64_t moved_bytes() const {
    int64_t bytes = 0;
    for (const CollectiveTraffic& traffic : moved) bytes += traffic.bytes;
    return bytes;
  }
};

}  // namespace zerolab
