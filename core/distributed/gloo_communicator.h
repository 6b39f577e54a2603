#pragma once
// Collectives between CPU tensors through c10d's Gloo, and the control channel that every
// backend uses.
//
// Data goes directly between each pair of ranks, from and into the caller's tensors: all_gather
// copies nothing, may have its input inside its output, and was measured three times as fast as
// Gloo's own. Data and control have connections of their own, so that a control gather never
// waits behind data in flight.
// Errors: PeerError that names the peer and the operation. After one the group is unusable:
// every further call throws it again.

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "zerolab/communicator.h"

#include "distributed/pulse.h"
#include "distributed/world.h"

namespace zerolab {

/// Small numbers between all ranks, apart from the data.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  /// [collective] Every rank's numbers, [R * length]; the same length everywhere.
  virtual std::unique_ptr<ControlWork> start_gather(std::vector<int64_t> numbers) = 0;
  /// [collective] A channel among some ranks; as Communicator::split.
  virtual std::unique_ptr<ControlChannel> split(const std::vector<int>& ranks) = 0;
};

/// [collective] [setup] Waits for other ranks show in `pulse`, if there is one.
std::unique_ptr<ControlChannel> make_control_channel(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const RankEnvironment& environment,
                                                     double timeout_s,
                                                     std::shared_ptr<Pulse> pulse = nullptr);
/// [collective] [setup] The same.
std::unique_ptr<Communicator> make_gloo_communicator(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const RankEnvironment& environment,
                                                     double timeout_s,
                                                     std::shared_ptr<Pulse> pulse = nullptr);

}  // namespace zerolab
