// The guard in a training: one micro-batch of one rank goes wrong in one step.

#include <array>
#include <limits>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>

#include "zerolab/error.h"

#include "awkward_model.h"
#include "catch.h"
#include "resume_training.h"
#include "store/checkpoint_folder.h"
#include "unit/store/scratch.h"

namespace {

using zerolab::Init;
using zerolab::Kind;

constexpr int kRanks = 3, kBadRank = 1;
constexpr int64_t kBadStep = 10, kBadMicro = 2, kSteps = 20, kTotal = 2 * 3 * kRanks;

/// Where a rank is: the first time in a step is the one that goes wrong, looking for its place
/// included.
struct Place {
  int64_t step = 0, micro = 0, visits = 0;
  void enter(int64_t now, const std::string& phase) {
    if (phase == "schedule" && now == kBadStep) ++visits;
    step = now;
    if (phase == "schedule" || phase == "diagnosis") micro = -1;
    if (phase == "data") ++micro;
  }
  bool goes_wrong() const { return step == kBadStep && micro == kBadMicro && visits == 1; }
};
using Places = std::array<Place, kRanks>;

enum class Harm { kLoss, kGradient, kSpike };

/// Two layers; what comes between them can have a gradient that is not finite, with a value that
/// is.
class HarmedModel : public zerolab::Model {
 public:
  HarmedModel(const Place* place, Harm harm) : place_(place), harm_(harm) {}

  void declare(zerolab::Parameters& p, const zerolab::ModelContext& context) override {
    vocabulary_ = p.declare("vocabulary", {context.vocab_size, kChannels}, Init::normal(0, 0.5));
    for (const char* name : {"first", "second"}) {
      units_.push_back(p.begin_unit(name));
      weights_.push_back(
          p.declare(std::string(name) + ".weight", {kChannels, kChannels}, Init::normal(0, 0.4)));
      biases_.push_back(p.declare(std::string(name) + ".bias", {kChannels}, Init::zeros()));
    }
    p.end_unit();
  }

  at::Tensor logits(const at::Tensor& tokens_BT, zerolab::Units& units) override {
    at::Tensor x_BTC = units.run(0, {tokens_BT}, [this](at::TensorList in, auto&) {
      return at::embedding(vocabulary_, in[0]);
    });
    for (size_t i = 0; i < units_.size(); ++i) {
      x_BTC = units.run(units_[i], {x_BTC}, [this, i](at::TensorList in, auto& scope) {
        return scope.dropout(at::linear(in[0], weights_[i], biases_[i]).tanh().add(in[0]), 0.1);
      });
      if (i == 0 && harmed(Harm::kGradient)) {
        x_BTC = x_BTC.add(x_BTC.sub(x_BTC.detach()).sqrt());  // adds zeros of infinite slope
      }
    }
    return units.run(0, {x_BTC},
                     [this](at::TensorList in, auto&) { return at::linear(in[0], vocabulary_); });
  }

  at::Tensor loss(const zerolab::Batch& batch, zerolab::Units& units) override {
    const at::Tensor logits_NV = logits(batch.tokens, units).flatten(0, 1);
    const at::Tensor sum = at::cross_entropy_loss(logits_NV, batch.targets.flatten(), {},
                                                  at::Reduction::Sum, zerolab::kIgnoredTarget);
    if (harmed(Harm::kLoss)) return sum.mul(std::numeric_limits<double>::quiet_NaN());
    return harmed(Harm::kSpike) ? sum.mul(1000) : sum;
  }

 private:
  static constexpr int64_t kChannels = 9;
  bool harmed(Harm how) const { return place_ != nullptr && harm_ == how && place_->goes_wrong(); }
  const Place* place_;
  Harm harm_;
  at::Tensor vocabulary_;
  std::vector<int> units_;
  std::vector<at::Tensor> weights_, biases_;
};

struct Case {
  std::string sharding, non_finite = "skip", spike = "off";
  Harm harm = Harm::kLoss;
};

Session session_of(const Case& c) {
  Setting s;
  s.sharding = c.sharding;
  s.ranks = kRanks;
  s.accumulation = 3;
  s.steps = kSteps;
  s.bucket = 1 << 16;
  Session session{.experiment = resumable(s, 0), .ranks = kRanks};
  session.experiment.guard.non_finite = c.non_finite;
  session.experiment.guard.spike = c.spike;
  session.experiment.guard.window = 6;
  session.experiment.guard.z_score = 8;
  session.change_plugins = [](zerolab::TrainingPlugins& plugins, int) {
    plugins.model = std::make_unique<HarmedModel>(nullptr, Harm::kLoss);
  };
  return session;
}

/// With the harm in it. `places` outlives the session.
Session harmed(const Case& c, Places& places) {
  Session session = session_of(c);
  session.change_plugins = [&places, c](zerolab::TrainingPlugins& plugins, int rank) {
    const Place* place = rank == kBadRank ? &places[kBadRank] : nullptr;
    plugins.model = std::make_unique<HarmedModel>(place, c.harm);
  };
  session.pulse = [&places](int rank, int64_t step, const char* phase) {
    places[static_cast<size_t>(rank)].enter(step, phase);
  };
  return session;
}

/// That the trouble is where it was put. The layer before the harm is the first that backward
/// comes to after it.
void check_place(const std::string& trouble, Harm harm) {
  const std::string on = "on rank 1 in micro-batch 2";
  if (harm == Harm::kSpike) {
    CHECK_THAT(trouble, Catch::Matchers::Contains("more than 8 standard deviations"));
    return;
  }
  if (harm == Harm::kLoss) {
    CHECK_THAT(trouble, Catch::Matchers::Contains("the loss is not finite " + on));
  } else {
    CHECK_THAT(trouble, Catch::Matchers::Contains("a gradient is not finite"));
    CHECK_THAT(trouble, Catch::Matchers::Contains("that of 'first."));
  }
  CHECK_THAT(trouble,
             Catch::Matchers::Contains("the first gradient that is not finite is that of '"));
  CHECK_THAT(trouble, Catch::Matchers::Contains("' " + on));
}

Case case_of(const std::string& sharding, Harm harm, const std::string& action) {
  Case c{.sharding = sharding};
  (harm == Harm::kSpike ? c.spike : c.non_finite) = action;
  c.harm = harm;
  return c;
}

constexpr Harm kHarms[] = {Harm::kLoss, Harm::kGradient, Harm::kSpike};

}  // namespace

TEST_CASE("a skipped step changes nothing but the schedule, and says where it went wrong") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    for (const Harm harm : kHarms) {
      INFO(strategy << ", harm " << static_cast<int>(harm));
      const zerolab::ScratchFolder scratch;
      Places places;
      Session session = harmed(case_of(strategy, harm, "skip"), places);
      session.run = "run";
      session.experiment.checkpoint.every = kBadStep;
      const History history = train(session);
      Session before = session_of(case_of(strategy, harm, "skip"));
      before.run = "before";
      before.stop_after = kBadStep - 1;
      train(before);
      CHECK(history.point.skipped_steps == 1);
      CHECK(history.point.applied_updates == kSteps - 1);
      for (const zerolab::StepRecord& record : history.steps) {
        CHECK(record.skipped == (record.step == kBadStep));
        CHECK(record.trouble.empty() == (record.step != kBadStep));
      }
      check_place(history.steps[kBadStep - 1].trouble, harm);
      check_same_bits(saved_tensors("before", kBadStep - 1), saved_tensors("run", kBadStep));
      CHECK(saved_point("run", kBadStep).skips_in_a_row == 1);
      // After it, training is that of a run that begins there.
      Session rest = session_of(case_of(strategy, harm, "skip"));
      rest.from = "run";
      rest.step = kBadStep;
      rest.same_owners = true;
      check_same_end(history, train(rest));
    }
  }
}

TEST_CASE("looking for the place of a bad gradient leaves no trace") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    INFO(strategy);
    Places places;
    const History loss = train(harmed(case_of(strategy, Harm::kLoss, "skip"), places));
    Places others;
    const History spike = train(harmed(case_of(strategy, Harm::kSpike, "skip"), others));
    check_same_bits(loss.state, spike.state);  // which was skipped without looking
  }
}

TEST_CASE("\"stop\" ends every rank with the same sentence and exit code") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    for (const Harm harm : kHarms) {
      INFO(strategy << ", harm " << static_cast<int>(harm));
      Places places;
      History history;
      const auto failed = failures(harmed(case_of(strategy, harm, "stop"), places), &history);
      for (const Failure& failure : failed) {
        CHECK(failure.exit_code == static_cast<int>(zerolab::ExitCode::kDiverged));
        CHECK(failure.message == failed.front().message);
      }
      CHECK_THAT(failed.front().message, Catch::Matchers::StartsWith("step 10, "));
      check_place(failed.front().message, harm);
      CHECK(history.steps.size() == kBadStep);  // the bad one is recorded, too
    }
  }
}

TEST_CASE(
    "\"rollback\" is going on from the newest checkpoint with the samples after the bad ones") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    for (const Harm harm : kHarms) {
      INFO(strategy << ", harm " << static_cast<int>(harm));
      const zerolab::ScratchFolder scratch;
      Places places;
      Session session = harmed(case_of(strategy, harm, "rollback"), places);
      session.run = "run";
      session.experiment.checkpoint.every = 4;
      session.experiment.checkpoint.async = true;
      session.experiment.checkpoint.keep_last = kSteps;
      const History history = train(session);
      REQUIRE(history.rollbacks.size() == 1);
      CHECK(history.rollbacks.front().first == 8);
      check_place(history.rollbacks.front().second, harm);
      CHECK(history.steps.size() == kBadStep + kSteps - 8);
      CHECK(history.point.rollbacks == 1);
      CHECK(history.point.next_sample == (kSteps + kBadStep - 8) * kTotal);

      Session until = session_of(case_of(strategy, harm, "rollback"));
      until.run = "sound";
      until.stop_after = 8;
      train(until);
      Session by_hand = until;
      by_hand.from = "sound";
      by_hand.run.clear();
      by_hand.step = 8;
      by_hand.stop_after = 0;
      by_hand.same_owners = true;
      by_hand.change_point = [](zerolab::TrainingPoint& point) {
        point.next_sample = kBadStep * kTotal;
        point.rollbacks = 1;
      };
      check_same_end(history, train(by_hand));

      // A run that ends right after it and is resumed does not meet the bad samples again.
      by_hand.from = "run";
      by_hand.change_point = {};
      check_same_end(history, train(by_hand));
    }
  }
}

TEST_CASE("a rollback without a checkpoint stops, and says what to set") {
  Places places;
  const auto failed = failures(harmed(case_of("zero2", Harm::kLoss, "rollback"), places));
  for (const Failure& failure : failed) {
    CHECK(failure.exit_code == static_cast<int>(zerolab::ExitCode::kDiverged));
    CHECK_THAT(failure.message, Catch::Matchers::Contains("there is no checkpoint to go back to"));
    CHECK_THAT(failure.message, Catch::Matchers::Contains("checkpoint.every"));
    CHECK(failure.message == failed.front().message);
  }
}

TEST_CASE("after max_rollbacks it stops") {
  const zerolab::ScratchFolder scratch;
  Places places;
  Session session = harmed(case_of("zero3", Harm::kGradient, "rollback"), places);
  session.run = "run";
  session.experiment.checkpoint.every = 4;
  session.experiment.guard.max_rollbacks = 0;
  for (const Failure& failure : failures(session)) {
    CHECK(failure.exit_code == static_cast<int>(zerolab::ExitCode::kDiverged));
    CHECK_THAT(failure.message, Catch::Matchers::Contains("after 0 rollbacks"));
    check_place(failure.message, Harm::kGradient);
  }
  CHECK(zerolab::CheckpointFolder("run").steps() == std::vector<int64_t>{4, 8});
}

TEST_CASE("a guard that never strikes changes nothing") {
  const History off = train(session_of({.sharding = "zero2"}));
  Case watching{.sharding = "zero2", .non_finite = "stop", .spike = "rollback"};
  const History on = train(session_of(watching));
  check_same_steps(off, on);
  check_same_bits(off.state, on.state);
  CHECK(on.point.recent_losses.size() == 6);
}
