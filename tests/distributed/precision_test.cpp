// Promises 1, 3 and 4 where parameters, gradients or both have 16 bits; and overflow.

#include <cmath>

#include "catch.h"
#include "resume_training.h"
#include "small_training.h"
#include "unit/store/scratch.h"
#include "wrapped_sharding.h"

using zerolab::Kind;

namespace {

struct Mode {
  const char* precision;
  const char* gradient_dtype;
  double loss_tolerance;  ///< relative, against fp32, after four steps
};

// bfloat16 keeps 8 bits of each value (2^-9 at most lost in rounding), float16 keeps 11.
constexpr Mode kModes[] = {
    {"bf16", "fp32", 2e-2},     {"bf16", "bf16", 2e-2},     {"bf16_scaled", "fp32", 2e-2},
    {"amp_bf16", "bf16", 2e-2}, {"amp_fp16", "fp32", 5e-3}, {"fp16", "fp32", 5e-3},
    {"fp16", "fp16", 5e-3},
};

Setting setting(const Mode& mode, int ranks, int64_t accumulation) {
  Setting s{.precision = mode.precision, .ranks = ranks, .accumulation = accumulation};
  s.precision_options = {{"gradient_dtype", std::string(mode.gradient_dtype)}};
  // Sums of many gradients, each times 65536, are beyond float16.
  if (mode.gradient_dtype == std::string("fp16")) s.precision_options["init_scale"] = 1024.0;
  return s;
}

std::string title(const Mode& mode, const Setting& s) {
  return title(s) + ", gradients in " + mode.gradient_dtype;
}

bool scales(const Mode& mode) {
  return std::string(mode.precision).find("16_scaled") != std::string::npos ||
         std::string(mode.precision).find("fp16") != std::string::npos;
}

}  // namespace

TEST_CASE("every strategy is bit-identical to every other in every precision, and predicted") {
  size_t number = 0;
  for (const Mode& mode : kModes) {
    // One rank in the first mode, whose memory is laid out as in any other.
    const std::vector<int> some =
        ++number == 1 ? std::vector{1, 3, 4} : std::vector{number % 2 == 0 ? 3 : 4};
    for (const int ranks : some) {
      Setting s = setting(mode, ranks, ranks == 4 ? 1 : 3);
      s.reduce_every = ranks == 3 ? "step" : "micro_batch";
      const Outcome reference = run(s);
      CHECK(reference.losses.front() != reference.losses.back());
      for (const std::string& strategy : host().names(Kind::kSharding)) {
        s.sharding = strategy;
        s.checkpointing = ranks == 3;
        INFO(title(mode, s));
        const Outcome outcome = run(s);
        check_bit_identical(reference, outcome);
        check_prediction(outcome);
      }
    }
  }
}

TEST_CASE("losses in every precision stay close to those in float32") {
  const Outcome exact = run({.ranks = 2, .accumulation = 3});
  for (const Mode& mode : kModes) {
    const Setting s = setting(mode, 2, 3);
    INFO(title(mode, s));
    const Outcome rounded = run(s);
    CHECK(rounded.losses != exact.losses);
    for (size_t i = 0; i < exact.losses.size(); ++i) {
      CHECK(rounded.losses[i] == Approx(exact.losses[i]).epsilon(mode.loss_tolerance));
    }
  }
}

// Rounded sums are rounded at each addition, so they too are the same however ranks share them.
TEST_CASE("1, 2 and 4 ranks give the same bits for the same total batch in every precision") {
  for (const Mode& mode : kModes) {
    const Outcome one = run(setting(mode, 1, 4));
    for (const auto& [strategy, ranks] : {std::pair("zero2", 2), {"zero3", 4}, {"hsdp", 4}}) {
      Setting s = setting(mode, ranks, 4 / ranks);
      s.sharding = strategy;
      INFO(title(mode, s));
      const Outcome other = run(s);
      CHECK(one.losses == other.losses);
      CHECK(one.norms == other.norms);
      check_same_tensors(one.state, other.state);
    }
  }
}

// Rajbhandari et al., arXiv 1910.02054, section 3.1, for K = 12 (float32 masters and two states).
TEST_CASE("bytes a parameter are those of the ZeRO paper, as counted") {
  for (const bool float_gradients : {false, true}) {
    const Mode mode{"bf16", float_gradients ? "fp32" : "bf16", 0};
    const int64_t g = float_gradients ? 4 : 2;
    for (const int N : {1, 2, 3, 4}) {
      for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) {
        Setting s = setting(mode, N, 1);
        s.sharding = strategy;
        s.steps = 1;
        const zerolab::HeldBytes held = run(s).held[0];
        INFO(title(mode, s));
        // Elements of which this rank has states: eight bytes of states, four of a master each.
        const int64_t owned = held.optimizer / 12;
        const bool alone = s.sharding == "ddp";
        const int64_t P = owned * (alone ? 1 : N);
        constexpr int64_t kFrozen = 2 * (23 * 23 + 15) / 16 * 16 * 2;
        const int64_t states = held.states() - kFrozen;
        CHECK(held.optimizer == owned * 12);
        if (alone) CHECK(states == (2 + g + 12) * P);
        if (s.sharding == "zero1") CHECK(states == (2 + g) * P + 12 * P / N);
        if (s.sharding == "zero2") CHECK(states == 2 * P + (g + 12) * P / N);
        if (s.sharding == "zero3") CHECK(states == (2 + g + 12) * P / N);
      }
    }
  }
}

TEST_CASE("16-bit parameters and gradients move half the bytes") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    Setting s{.sharding = strategy, .ranks = 4, .accumulation = 3, .steps = 1};
    const int64_t exact = run(s).bytes_moved;
    s = setting({"bf16", "bf16", 0}, 4, 3);
    s.sharding = strategy;
    s.steps = 1;
    CHECK(run(s).bytes_moved * 2 == exact);
  }
}

TEST_CASE("an overflow on one rank skips the step on all, and lowers the scale") {
  for (const Mode& mode : kModes) {
    if (!scales(mode)) continue;
    for (const char* strategy : {"ddp", "zero2", "zero3"}) {
      Setting s = setting(mode, 3, 1);
      s.sharding = strategy;
      s.poison_from = 2;
      INFO(title(mode, s));
      const Outcome outcome = run(s);
      CHECK(outcome.skipped == std::vector<bool>{false, false, true, true});
      s.poison_from = -1;
      s.steps = 2;
      check_same_tensors(run(s).state, outcome.state);
    }
  }
}

TEST_CASE("a wire that rounds to 16 bits changes nothing of 16-bit gradients and parameters") {
  for (const char* strategy : {"zero1", "zero3", "hsdp"}) {
    Setting s = setting({"bf16", "bf16", 0}, 4, 3);
    s.sharding = strategy;
    const Outcome plain = run(s);
    s.options = {{"wire_dtype", std::string("bf16")}};
    const Outcome wired = run(s);
    check_bit_identical(plain, wired);
    check_prediction(wired);
    s = setting({"bf16", "fp32", 0}, 4, 3);
    s.sharding = strategy;
    s.options = {{"wire_dtype", std::string("int8")}};
    check_prediction(run(s));
  }
}

TEST_CASE("16-bit gradients through an int8 wire are refused with a sentence") {
  Setting s = setting({"bf16", "bf16", 0}, 2, 1);
  s.sharding = "zero2";
  s.options = {{"wire_dtype", std::string("int8")}};
  CHECK_THROWS_WITH(run(s), Catch::Matchers::Contains("precision.gradient_dtype"));
}

TEST_CASE("error feedback of 16-bit gradients, which lose nothing on the wire, is refused") {
  Setting s = setting({"bf16", "bf16", 0}, 2, 1);
  s.sharding = "zero2";
  s.options = {{"wire_dtype", std::string("bf16")}, {"wire_error_feedback", true}};
  CHECK_THROWS_WITH(run(s), Catch::Matchers::Contains("wire_error_feedback"));
  s.precision_options = {{"gradient_dtype", std::string("fp32")}};
  CHECK_NOTHROW(run(s));
}

namespace {

/// The training of `setting`, with another strategy made by `wrap` on rank 1.
std::string failure_of(
    const Setting& setting, bool check_replicas,
    const std::function<std::unique_ptr<zerolab::Sharding>(std::unique_ptr<zerolab::Sharding>)>&
        wrap) {
  Session session{.experiment = experiment_of(setting), .ranks = setting.ranks};
  session.experiment.check_replicas = check_replicas;
  session.change_plugins = [&](zerolab::TrainingPlugins& plugins, int rank) {
    if (rank == 1) plugins.sharding = wrap(std::move(plugins.sharding));
  };
  return failures(session).at(1).message;
}

/// Spoils a parameter after the second update.
class Forgetful : public WrappedSharding {
 public:
  using WrappedSharding::WrappedSharding;
  void attach(const zerolab::ShardingContext& context) override {
    parameters_ = &context.parameters;
    WrappedSharding::attach(context);
  }
  void update(const zerolab::UpdateStep& step) override {
    WrappedSharding::update(step);
    if (step.step == 2) parameters_->tensor(0).detach()[0][0] += 1;
  }

 private:
  zerolab::Parameters* parameters_ = nullptr;
};

/// Knows float32 alone.
class FloatSharding : public WrappedSharding {
 public:
  using WrappedSharding::WrappedSharding;
  void attach(const zerolab::ShardingContext& context) override {
    WrappedSharding::attach({context.parameters,
                             context.world,
                             context.optimizer,
                             {},
                             context.seed,
                             context.reduce_every});
  }
};

}  // namespace

TEST_CASE("check_replicas names the step and the parameter at which a rank parts from the others") {
  const auto forget = [](std::unique_ptr<zerolab::Sharding> inner) {
    return std::make_unique<Forgetful>(std::move(inner));
  };
  const Setting s{.sharding = "zero2", .ranks = 2};
  CHECK_THAT(failure_of(s, true, forget),
             Catch::Matchers::Contains("after step 2, rank 1 computes with another 'embedding'"));
  CHECK(failure_of(s, false, forget).empty());
}

TEST_CASE("a strategy that knows float32 alone is refused where another dtype is asked for") {
  const auto floats = [](std::unique_ptr<zerolab::Sharding> inner) {
    return std::make_unique<FloatSharding>(std::move(inner));
  };
  CHECK_THROWS_WITH(failure_of(setting(kModes[0], 2, 1), false, floats),
                    Catch::Matchers::Contains("precision 'bf16' asks for BFloat16"));
}

TEST_CASE("a run in 16 bits goes on exactly, under another strategy too") {
  const zerolab::ScratchFolder scratch;
  for (const Mode& mode : {Mode{"bf16", "bf16", 0}, Mode{"fp16", "fp32", 0}}) {
    Setting s = setting(mode, 2, 3);
    s.steps = 8;
    const Session whole{.experiment = resumable(s, 4), .ranks = 2, .run = mode.precision};
    const History all = train(whole);
    for (const char* strategy : {"ddp", "zero3"}) {
      s.sharding = strategy;
      INFO(title(mode, s));
      check_same_end(
          all,
          train({.experiment = resumable(s, 0), .ranks = 2, .from = mode.precision, .step = 4}));
    }
  }
}
