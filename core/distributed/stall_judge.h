#pragma once
// Decides from what is known of the ranks whether one of them is stuck or gone. Pure: the clock is
// an argument.
//
// - This rank is stuck when it makes no progress for `timeout_s` and does not wait for others.
// - Another one is gone when its beat stays the same for `timeout_s`, or when nothing is heard from
//   the store that it hosts.
// - After a failure that any rank reported, a rank that stays blocked by others ends.
// Nothing is declared before this rank's first beat. Only rounds that the store answered count
// against others: a store that is silent says nothing about them.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "distributed/failure.h"
#include "distributed/pulse.h"

namespace zerolab {

/// What a rank last said of itself.
struct PeerBeat {
  int rank = 0;
  int64_t number = 0;  ///< grows with each beat; kLeft: it ended, or will, and is not missed
  bool hosts_store = false;
  bool began = false;  ///< its main thread has made a beat
  std::string where;   ///< "step 12, backward"

  static constexpr int64_t kLeft = -1;
};

/// What the store said when it was last asked.
struct Round {
  int64_t count = 0;  ///< of rounds that were answered
  bool over = false;  ///< the store is gone: nothing more will be heard
  std::vector<PeerBeat> peers;
  std::optional<Failure> reported;
};

struct Verdict {
  Failure cause;
  bool reported = false;  ///< by another rank: it only has to be told
};

/// "step 12, backward"
std::string place(int64_t step, const std::string& phase);

class StallJudge {
 public:
  StallJudge(int rank, double timeout_s) : rank_(rank), timeout_s_(timeout_s) {}

  /// Why this rank must end now; nothing while all is well. `now_s` counts seconds in which this
  /// process ran, so that a rank that was stopped for an hour does not blame the others for it.
  std::optional<Verdict> judge(double now_s, const Pulse::Reading& own, const Round& round);

 private:
  struct Heard {
    PeerBeat beat;
    double changed_at = 0;
  };
  void take_in(double now_s, const Pulse::Reading& own, const Round& round);
  Failure stall(int rank, const std::string& message) const;
  std::optional<Verdict> missing_peer(double now_s, const Round& round) const;

  int rank_;
  double timeout_s_;
  int64_t progress_ = -1, rounds_ = 0;
  double idle_since_ = 0;     ///< no progress, and no wait
  double blocked_since_ = 0;  ///< in one and the same wait
  double heard_at_ = 0;       ///< of the last answer of the store
  std::optional<double> reported_at_;
  std::map<int, Heard> peers_;
};

}  // namespace zerolab
