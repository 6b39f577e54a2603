#pragma once
// Tells the other ranks through the store, again and again, that this process lives and where it
// is, and reads the same of them.
//
// On a thread and a connection of its own: the host of the store may be stopped, and then a request
// blocks for good. Who asks for the news is never blocked; a thread that is stays behind.
// Ranks: [local]. Each rank reads the next few after it (and rank 0) instead of all, so that the
// store's load grows with the number of ranks, not with its square.

#include <chrono>
#include <memory>
#include <optional>

#include "distributed/failure.h"
#include "distributed/pulse.h"
#include "distributed/stall_judge.h"
#include "distributed/world.h"

namespace zerolab {

class BeatExchange {
 public:
  /// [setup] Errors: PeerError if the store is not reached.
  BeatExchange(const RankEnvironment& environment, std::shared_ptr<const Pulse> pulse,
               std::chrono::milliseconds interval);
  /// Says that this rank is not to be missed any more.
  ~BeatExchange();
  BeatExchange(const BeatExchange&) = delete;
  BeatExchange& operator=(const BeatExchange&) = delete;

  /// The latest news.
  Round round() const;
  /// Before an abrupt end: reports `cause`, if there is one, and returns the failure that came
  /// first in the run, which may be another. The host of the store gives the others time to read
  /// it. At most a few seconds; nothing if the store does not answer.
  std::optional<Failure> conclude(const std::optional<Failure>& cause);

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);
  std::shared_ptr<Shared> shared_;
};

}  // namespace zerolab
