#include "distributed/stall_judge.h"

#include <algorithm>
#include <cstdio>

namespace zerolab {
namespace {

constexpr double kTimeToNotice_s = 1;  // that a connection broke, before a wait is given up

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

}  // namespace

std::string place(int64_t step, const std::string& phase) {
  if (step <= 0) return phase.empty() ? "the set-up" : phase;
  return "step " + std::to_string(step) + (phase.empty() ? "" : ", " + phase);
}

Failure StallJudge::stall(int rank, const std::string& message) const {
  return {rank, static_cast<int>(ExitCode::kPeer), message, true};
}

void StallJudge::take_in(double now_s, const Pulse::Reading& own, const Round& round) {
  const bool moved = own.progress != progress_;
  progress_ = own.progress;
  if (moved || own.waiting) idle_since_ = now_s;
  if (moved || !own.waiting) blocked_since_ = now_s;
  if (round.reported && !reported_at_) reported_at_ = now_s;
  if (round.count == rounds_) return;
  rounds_ = round.count;
  heard_at_ = now_s;
  for (const PeerBeat& beat : round.peers) {
    Heard& heard = peers_[beat.rank];
    if (heard.beat.number != beat.number) heard.changed_at = now_s;
    heard.beat = beat;
  }
}

std::optional<Verdict> StallJudge::missing_peer(double now_s, const Round& round) const {
  if (round.over) return std::nullopt;
  const bool silent = now_s - heard_at_ > timeout_s_;
  for (const auto& [rank, heard] : peers_) {
    if (!heard.beat.began || heard.beat.number == PeerBeat::kLeft) continue;
    // While the store is silent, beats are as old as its last answer.
    const bool missed = heard_at_ - heard.changed_at > timeout_s_;
    if (!missed && !(silent && heard.beat.hosts_store)) continue;
    return Verdict{stall(rank, "was not heard of for " + seconds_text(timeout_s_) +
                                   "; it was last in " + heard.beat.where)};
  }
  return std::nullopt;
}

std::optional<Verdict> StallJudge::judge(double now_s, const Pulse::Reading& own,
                                         const Round& round) {
  take_in(now_s, own, round);
  if (round.reported && own.waiting &&
      now_s - std::max(*reported_at_, blocked_since_) >= kTimeToNotice_s)
    return Verdict{*round.reported, true};
  if (own.beats == 0) return std::nullopt;
  if (now_s - idle_since_ > timeout_s_) {
    return Verdict{stall(rank_, "made no progress for " + seconds_text(timeout_s_) + " in " +
                                    place(own.step, own.phase ? own.phase : "") + ": it is stuck")};
  }
  return missing_peer(now_s, round);
}

}  // namespace zerolab
