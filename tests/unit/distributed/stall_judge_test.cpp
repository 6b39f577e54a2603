#include "distributed/stall_judge.h"

#include "catch.h"

using zerolab::Failure;
using zerolab::PeerBeat;
using zerolab::Pulse;
using zerolab::Round;
using zerolab::StallJudge;

namespace {

constexpr double kTimeout = 60;

/// A judge of rank 0, and what it is shown.
struct Watched {
  StallJudge judge{0, kTimeout};
  Pulse pulse;
  Round round;
  double now = 0;

  Watched() { hear(1, 1); }
  void hear(int rank, int64_t number, bool hosts_store = false) {
    ++round.count;
    std::erase_if(round.peers, [&](const PeerBeat& beat) { return beat.rank == rank; });
    round.peers.push_back({rank, number, hosts_store, true, "step 3, forward"});
  }
  /// The sentence of a verdict; empty while all is well.
  std::string after(double seconds) {
    now += seconds;
    const auto verdict = judge.judge(now, pulse.read(), round);
    return verdict ? verdict->cause.sentence() : "";
  }
};

}  // namespace

TEST_CASE("a place is a step and a phase, or the phase of what comes before the steps") {
  CHECK(zerolab::place(12, "backward") == "step 12, backward");
  CHECK(zerolab::place(12, "") == "step 12");
  CHECK(zerolab::place(0, "loading") == "loading");
  CHECK(zerolab::place(0, "") == "the set-up");
}

TEST_CASE("a rank without progress for longer than the time-out is stuck") {
  Watched watched;
  watched.pulse.beat(12, "backward");
  CHECK(watched.after(0).empty());
  watched.hear(1, 2);
  CHECK(watched.after(60).empty());
  watched.hear(1, 3);
  CHECK(watched.after(1) == "rank 0: made no progress for 60 s in step 12, backward: it is stuck");
}

TEST_CASE("each beat begins the time-out anew") {
  Watched watched;
  for (int i = 0; i < 5; ++i) {
    watched.pulse.beat(12, "backward");
    watched.hear(1, 2 + i);
    CHECK(watched.after(59).empty());
  }
}

TEST_CASE("a rank that waits for others is not stuck, and has its time after the wait") {
  Watched watched;
  watched.pulse.beat(12, "backward");
  {
    const Pulse::Waiting waiting(&watched.pulse);
    for (int i = 0; i < 5; ++i) {
      watched.hear(1, 2 + i);
      CHECK(watched.after(50).empty());
    }
  }
  watched.hear(1, 8);
  CHECK(watched.after(50).empty());
  watched.hear(1, 9);
  CHECK(watched.after(50).empty());
  watched.hear(1, 10);
  CHECK_FALSE(watched.after(11).empty());
}

TEST_CASE("nothing is declared before the first beat") {
  Watched watched;
  CHECK(watched.after(0).empty());
  CHECK(watched.after(1000).empty());
}

TEST_CASE("a rank whose beat stays the same is missed, with its last place") {
  Watched watched;
  watched.pulse.beat(4, "forward");
  const Pulse::Waiting waiting(&watched.pulse);
  CHECK(watched.after(0).empty());
  watched.hear(1, 1);
  CHECK(watched.after(60).empty());
  watched.hear(1, 1);
  CHECK(watched.after(1) == "rank 1: was not heard of for 60 s; it was last in step 3, forward");
}

TEST_CASE("a rank that has left, or has not begun, is not missed") {
  Watched watched;
  watched.pulse.beat(4, "forward");
  const Pulse::Waiting waiting(&watched.pulse);
  watched.hear(1, PeerBeat::kLeft);
  watched.hear(2, 5);
  watched.round.peers.back().began = false;
  CHECK(watched.after(0).empty());
  ++watched.round.count;
  CHECK(watched.after(1000).empty());
}

TEST_CASE("a store that does not answer says nothing about the ranks") {
  Watched watched;
  watched.pulse.beat(4, "forward");
  const Pulse::Waiting waiting(&watched.pulse);
  CHECK(watched.after(0).empty());
  CHECK(watched.after(1000).empty());
}

TEST_CASE("a store that does not answer tells that the rank that hosts it is gone") {
  Watched watched;
  watched.pulse.beat(4, "forward");
  const Pulse::Waiting waiting(&watched.pulse);
  watched.hear(1, 2);
  watched.hear(2, 2, true);
  CHECK(watched.after(0).empty());
  CHECK(watched.after(60).empty());
  SECTION("while its connection stands") {
    CHECK(watched.after(1) == "rank 2: was not heard of for 60 s; it was last in step 3, forward");
  }
  SECTION("but not once the connection broke: then the run has ended") {
    watched.round.over = true;
    CHECK(watched.after(1000).empty());
  }
}

TEST_CASE("after a reported failure a rank ends that stays in one wait") {
  Watched watched;
  watched.round.reported = Failure{1, 4, "the disk is full"};
  SECTION("a second later") {
    const Pulse::Waiting waiting(&watched.pulse);
    CHECK(watched.after(0).empty());
    CHECK(watched.after(0.9).empty());
    CHECK(watched.after(0.2) == "rank 1: the disk is full");
  }
  SECTION("not while its waits end") {
    for (int i = 0; i < 5; ++i) {
      const Pulse::Waiting waiting(&watched.pulse);
      CHECK(watched.after(0.9).empty());
    }
  }
  SECTION("not while it computes") {
    CHECK(watched.after(30).empty());
  }
}

TEST_CASE("a failure that only blames a peer gives way, a stall does not") {
  CHECK(Failure{1, 5, "lost the connection"}.blames_peer());
  CHECK_FALSE(Failure{1, 5, "is stuck", true}.blames_peer());
  CHECK_FALSE(Failure{1, 4, "the disk is full"}.blames_peer());
}
