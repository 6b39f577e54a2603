// Promise 3: on another number of ranks training goes on with the same loss curve and the next
// samples: within 1e-5 over 100 steps, and to the last bit between powers of two.

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>

#include "awkward_model.h"
#include "catch.h"
#include "resume_training.h"
#include "unit/store/scratch.h"

namespace {

using zerolab::Kind;

constexpr int64_t kSteps = 100, kStop = 50, kTotal = 12;
constexpr double kTolerance = 1e-5;  // of a loss, relative: other orders of addition, 50 steps long

/// One total, cut in micro-batches of 3 where that divides. Dropout draws for each micro-batch: where
/// micro-batches differ, only a model without it can be compared.
Setting setting(const std::string& sharding, int ranks, int64_t micro = 0) {
  Setting s;
  s.sharding = sharding;
  s.ranks = ranks;
  s.micro_batch_size = micro > 0 ? micro : (ranks == 3 ? 4 : 3);
  s.accumulation = kTotal / ranks / s.micro_batch_size;
  s.steps = kSteps;
  s.bucket = 1 << 16;
  return s;
}

std::string run_of(const Setting& s, bool dropout) {
  return s.sharding + "-" + std::to_string(s.ranks) + (dropout ? "" : "-without-dropout");
}

Session session_of(const Setting& s, bool dropout, int64_t every) {
  Session session{.experiment = resumable(s, every), .ranks = s.ranks};
  if (dropout) return session;
  session.change_plugins = [](zerolab::TrainingPlugins& plugins, int) {
    auto model = std::make_unique<AwkwardModel>();
    model->leave_dropout_out();
    plugins.model = std::move(model);
  };
  return session;
}

History second_half(const Setting& s, bool dropout, const std::string& from) {
  Session session = session_of(s, dropout, 0);
  session.from = from;
  session.step = kStop;
  return train(session);
}

bool is_power_of_two(int ranks) {
  return (ranks & (ranks - 1)) == 0;
}

/// Losses within the tolerance, and the very same samples.
void check_same_curve(const History& whole, const History& part) {
  REQUIRE(part.steps.size() == kSteps - kStop);
  for (size_t i = 0; i < part.steps.size(); ++i) {
    const zerolab::StepRecord &a = whole.steps[kStop + i], &b = part.steps[i];
    INFO("step " << b.step);
    CHECK(a.step == b.step);
    CHECK(std::abs(a.loss - b.loss) <= kTolerance * a.loss);
    if (a.evaluated) CHECK(std::abs(a.val_loss - b.val_loss) <= kTolerance * a.val_loss);
    CHECK(a.tokens == b.tokens);
    CHECK(whole.samples[kStop + i] == part.samples[i]);
  }
  CHECK(whole.point.next_sample == part.point.next_sample);
  CHECK(whole.point.applied_updates == part.point.applied_updates);
}

/// Uninterrupted runs, each trained once.
class Runs {
 public:
  const History& of(const Setting& s, bool dropout) {
    const std::string run = run_of(s, dropout);
    const auto found = runs_.find(run);
    if (found != runs_.end()) return found->second;
    Session session = session_of(s, dropout, kStop);
    session.run = run;
    return runs_[run] = train(session);
  }

 private:
  std::map<std::string, History> runs_;
};

/// Every sample of an epoch once before any comes again.
void check_each_sample_once(const std::vector<int64_t>& samples, int64_t size) {
  for (size_t begin = 0; begin < samples.size(); begin += static_cast<size_t>(size)) {
    const size_t end = std::min(samples.size(), begin + static_cast<size_t>(size));
    std::vector<int64_t> epoch(samples.begin() + static_cast<std::ptrdiff_t>(begin),
                               samples.begin() + static_cast<std::ptrdiff_t>(end));
    std::sort(epoch.begin(), epoch.end());
    INFO("from sample " << begin);
    CHECK(std::adjacent_find(epoch.begin(), epoch.end()) == epoch.end());
    CHECK(epoch.front() >= 0);
    CHECK(epoch.back() < size);
  }
}

std::vector<int64_t> joined(const std::vector<std::vector<int64_t>>& steps) {
  std::vector<int64_t> samples;
  for (const auto& step : steps) samples.insert(samples.end(), step.begin(), step.end());
  return samples;
}

}  // namespace

namespace {

/// Four moves to other ranks, from each strategy to all others; or every pair of strategies once.
void check_moves(bool all_pairs) {
  const zerolab::ScratchFolder scratch;
  Runs runs;
  const std::vector<std::string> strategies = host().names(Kind::kSharding);
  constexpr std::pair<int, int> kMoves[] = {{4, 2}, {2, 3}, {3, 1}, {1, 4}};
  size_t move = 0;
  for (const auto& [before, after] : kMoves) {
    const bool exact = is_power_of_two(before) && is_power_of_two(after);
    for (size_t i = 0; i < strategies.size(); ++i) {
      const Setting saved = setting(strategies[i], before);
      const History& whole = runs.of(saved, exact);
      for (size_t next = 0; next < strategies.size(); ++next) {
        const size_t turn = next % (std::size(kMoves) + 1);
        if (!all_pairs && turn != move && !(move == 0 && turn == std::size(kMoves))) continue;
        const Setting s = setting(strategies[(i + next) % strategies.size()], after);
        INFO(title(saved) << " and then " << title(s));
        const History part = second_half(s, exact, run_of(saved, exact));
        check_same_curve(whole, part);
        if (exact) check_same_end(whole, part);
      }
    }
    ++move;
  }
}

}  // namespace

TEST_CASE("any strategy goes on from any other's checkpoint on other ranks") {
  check_moves(false);
}

TEST_CASE("any strategy goes on from any other's checkpoint on other ranks, every move",
          "[.whole]") {
  check_moves(true);
}

TEST_CASE("between 1, 2 and 4 ranks nothing changes to the last bit, dropout and all") {
  const zerolab::ScratchFolder scratch;
  Runs runs;
  const std::vector<std::string> strategies = host().names(Kind::kSharding);
  const History& reference = runs.of(setting(strategies.front(), 1), true);
  for (const int ranks : {2, 4}) {
    for (const std::string& strategy : strategies) {
      const Setting s = setting(strategy, ranks);
      INFO(title(s));
      check_same_end(reference, runs.of(s, true));
      check_same_end(reference, second_half(setting(strategy, 1), true, run_of(s, true)));
    }
  }
}

TEST_CASE("with the same micro-batches three ranks draw the same dropout, too") {
  const zerolab::ScratchFolder scratch;
  Runs runs;
  const std::vector<std::string> strategies = host().names(Kind::kSharding);
  for (const std::string& strategy : {strategies.front(), strategies.back()}) {
    const Setting two = setting(strategy, 2, 2), three = setting(strategy, 3, 2);
    INFO(strategy);
    const History& whole = runs.of(two, true);
    check_same_curve(whole, second_half(three, true, run_of(two, true)));
    CHECK(runs.of(three, true).steps.size() == kSteps);
    check_same_curve(whole, second_half(two, true, run_of(three, true)));
  }
}

TEST_CASE("over stops and other ranks no sample is skipped and none comes twice in an epoch") {
  const zerolab::ScratchFolder scratch;
  const std::vector<std::string> strategies = host().names(Kind::kSharding);
  const History whole = train({.experiment = resumable(setting(strategies.front(), 1), 0)});
  // 100 steps in five sessions: ranks, micro-batch size, and the step at which each stops.
  const std::vector<std::array<int64_t, 3>> kSessions = {
      {4, 3, 7}, {3, 2, 31}, {1, 6, 32}, {2, 1, 88}, {4, 1, 0}};
  std::vector<std::vector<int64_t>> samples;
  int64_t step = 0;
  for (size_t i = 0; i < kSessions.size(); ++i) {
    const auto [ranks, micro, stop] = kSessions[i];
    const Setting s = setting(strategies[i % strategies.size()], static_cast<int>(ranks), micro);
    Session session{.experiment = resumable(s, 0), .ranks = s.ranks, .run = "run"};
    if (step > 0) session.from = "run";
    session.step = step;
    session.stop_after = stop;
    const History part = train(session);
    samples.insert(samples.end(), part.samples.begin(), part.samples.end());
    step = stop;
  }
  CHECK(samples.size() == kSteps);
  CHECK(samples == whole.samples);
  const std::vector<int64_t> all = joined(samples);
  CHECK(all.size() == kSteps * kTotal);
  check_each_sample_once(all, CountingData().size(zerolab::Split::kTrain));
}
