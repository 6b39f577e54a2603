// Promise 2: to stop and resume is bit-identical to not stopping, under the same strategy or
// another one.

#include "zerolab/error.h"

#include "catch.h"
#include "resume_training.h"
#include "unit/store/scratch.h"

namespace {

using zerolab::Kind;

/// Saved and stopped after half of the steps.
Setting setting(int ranks, const std::string& precision, int64_t steps) {
  Setting s;
  s.ranks = ranks;
  s.precision = precision;
  s.accumulation = 3;
  s.steps = steps;
  s.bucket = 1 << 16;
  return s;
}

std::string run_name(const std::string& word, size_t number) {
  return word + "-" + std::to_string(number);
}

/// All steps at once, saving in the middle, so that what follows could spoil what is saved.
Session whole(const Setting& s, bool async, const std::string& run) {
  return {.experiment = resumable(s, s.steps / 2, async), .ranks = s.ranks, .run = run};
}

/// The other half of the steps, from a run's checkpoint.
Session second_half(const Setting& s, const std::string& from, bool same_owners) {
  return {.experiment = resumable(s, 0),
          .ranks = s.ranks,
          .from = from,
          .step = s.steps / 2,
          .same_owners = same_owners};
}

/// Stopped half-way, it saved what a run that went on saved there.
void check_stopped(const Setting& s, const std::string& going, const std::string& stopped) {
  const int64_t half = s.steps / 2;
  Session session{.experiment = resumable(s, 0), .ranks = s.ranks, .run = stopped};
  session.stop_after = half;
  const History first = train(session);
  CHECK(first.stopped);
  CHECK(first.published == std::vector<int64_t>{half});
  check_same_bits(saved_tensors(going, half), saved_tensors(stopped, half));
  check_same_point(saved_point(going, half), saved_point(stopped, half));
  check_same_bits(first.state, saved_tensors(stopped, half));
}

/// Strategies that can feed back what a wire rounds off, and do.
std::vector<Setting> with_feedback(int ranks, const std::string& wire) {
  Setting base = setting(ranks, "fp32", 12);
  base.options = {{"wire_dtype", wire}, {"wire_error_feedback", true}};
  std::vector<Setting> suitable = all_strategies(base);
  std::erase_if(suitable, [](const Setting& s) {
    try {
      host().create<zerolab::Sharding>(experiment_of(s))->check_ranks(s.ranks);
      return false;
    } catch (const zerolab::ConfigError&) {
      return true;
    }
  });
  CHECK(suitable.size() >= 4);
  return suitable;
}

}  // namespace

TEST_CASE("40 steps are the same as 20, a stop, and 20 more, under every strategy") {
  const zerolab::ScratchFolder scratch;
  size_t number = 0;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Setting& s : all_strategies(setting(ranks, "amp_bf16", 40))) {
      const bool async = ++number % 2 == 0;
      INFO(title(s, async));
      const std::string going = run_name("going", number), stopped = run_name("stopped", number);
      const History all = train(whole(s, async, going));
      CHECK(all.published == std::vector<int64_t>{20, 40});
      CHECK(all.steps.front().loss != all.steps.back().loss);
      check_stopped(s, going, stopped);
      check_same_end(all, train(second_half(s, stopped, true)));
    }
  }
}

TEST_CASE("saving does not change training, at once or behind it") {
  const zerolab::ScratchFolder scratch;
  for (const int ranks : {1, 3}) {
    for (const Setting& s : all_strategies(setting(ranks, "fp32", 12))) {
      const History silent = train({.experiment = resumable(s, 0), .ranks = ranks});
      for (const bool async : {false, true}) {
        INFO(title(s, async));
        Session saving = whole(s, async, title(s, async));
        saving.experiment.checkpoint.every = 1;
        saving.experiment.checkpoint.keep_last = s.steps;
        check_same_end(silent, train(saving));
        check_same_end(silent, train(second_half(s, title(s, async), true)));
      }
    }
  }
}

TEST_CASE("every strategy goes on with what any other has saved, to the last bit") {
  const zerolab::ScratchFolder scratch;
  size_t number = 0;
  for (const int ranks : {2, 4}) {
    const std::string precision = ranks == 2 ? "fp32" : "amp_bf16";
    const std::vector<Setting> strategies = all_strategies(setting(ranks, precision, 12));
    for (const Setting& saver : strategies) {
      const std::string run = run_name("run", ++number);
      const History all = train(whole(saver, true, run));
      for (const Setting& s : strategies) {
        INFO(title(saver, true) << " and then " << title(s, false));
        check_same_end(all, train(second_half(s, run, false)));
      }
    }
  }
}

TEST_CASE("what a rank kept of what the wire rounded off is part of a checkpoint") {
  const zerolab::ScratchFolder scratch;
  size_t number = 0;
  for (const int ranks : {2, 3, 4}) {
    for (const Setting& s : with_feedback(ranks, ranks == 2 ? "bf16" : "int8")) {
      const bool async = ++number % 2 == 0;
      INFO(title(s, async));
      const std::string run = run_name("run", number);
      const History all = train(whole(s, async, run));
      const History same = train(second_half(s, run, true));
      CHECK(same.notes.empty());
      check_same_end(all, same);
    }
  }
}

TEST_CASE("what a rank kept for itself is left behind on other ranks, with a note") {
  const zerolab::ScratchFolder scratch;
  for (const Setting& s : with_feedback(2, "bf16")) {
    INFO(title(s));
    const std::string run = "run-" + s.sharding;
    const History all = train(whole(s, false, run));
    Setting other = s;
    other.ranks = 3;
    other.micro_batch_size = 4;
    other.accumulation = 1;
    const History rest = train(second_half(other, run, false));
    REQUIRE(rest.notes.size() == 1);
    CHECK_THAT(rest.notes.front(), Catch::Matchers::Contains("error_feedback"));
    CHECK_THAT(rest.notes.front(), Catch::Matchers::Contains("starts anew"));
    CHECK(rest.steps.size() == 6);
    CHECK(rest.samples.back() == all.samples.back());
  }
}
