#pragma once
// The thread that looks for ranks that are stuck or gone, this one included, and ends the process
// when there is one: the main thread hangs then, and cannot.
//
// Ranks: [local]; each rank has one. stall_judge.h says when; beat_exchange.h brings the news.
// Errors: an end with exit code 5, after the cause was reported. Our launcher prints it; for others
// this thread does.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "distributed/beat_exchange.h"
#include "distributed/pulse.h"
#include "distributed/stall_judge.h"
#include "distributed/world.h"

namespace zerolab {

class Watcher {
 public:
  /// [setup] Errors: PeerError if the store of a run that has one is not reached.
  Watcher(const RankEnvironment& environment, std::shared_ptr<const Pulse> pulse,
          double stall_timeout_s);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// The failure that any rank reported, as far as this rank has heard: what is left of it once the
  /// host of the store is gone.
  std::optional<Failure> reported() const {
    return exchange_ ? exchange_->round().reported : std::nullopt;
  }

 private:
  void run(double tick_s);
  [[noreturn]] void end(const Verdict& verdict);

  RankEnvironment environment_;
  std::shared_ptr<const Pulse> pulse_;
  StallJudge judge_;
  std::unique_ptr<BeatExchange> exchange_;  ///< none in a lone process

  std::mutex mutex_;
  std::condition_variable changed_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace zerolab
