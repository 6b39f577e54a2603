// What a checkpoint has to be to be loaded, and what is noticed after loading.

#include <mutex>

#include "zerolab/error.h"

#include "awkward_model.h"
#include "catch.h"
#include "resume_training.h"
#include "train/saved_state.h"
#include "train/whole_state.h"
#include "unit/store/scratch.h"
#include "wrapped_sharding.h"

namespace {

using zerolab::Kind;

Setting setting(const std::string& sharding, int ranks = 2) {
  Setting s;
  s.sharding = sharding;
  s.ranks = ranks;
  s.steps = 4;
  s.bucket = 1 << 16;
  return s;
}

/// Four steps and a checkpoint at the end of them.
void save(const Setting& s) {
  train({.experiment = resumable(s, 0), .ranks = s.ranks, .run = "run"});
}

/// A rank loads, and fails; its state is bit by bit as it was. Returns each rank's message.
std::vector<std::string> refusals(const Session& session) {
  std::vector<std::string> messages(static_cast<size_t>(session.ranks));
  std::mutex mutex;  // of the checks
  on_ranks(session, [&](StandingRank& rank) {
    const std::vector<at::Tensor> before = copied_state(rank.trainer);
    std::string message = "it loaded";
    try {
      load(session, rank, 4);
    } catch (const zerolab::ConfigError& error) {
      message = error.what();
    }
    const std::vector<at::Tensor> after = copied_state(rank.trainer);
    const std::lock_guard lock(mutex);
    messages[static_cast<size_t>(rank.world.rank())] = message;
    REQUIRE(before.size() == after.size());
    for (size_t i = 0; i < before.size(); ++i) {
      CHECK(zerolab::deviation(before[i], after[i]).num_differing == 0);
    }
    CHECK(rank.trainer.finished_steps() == 0);
  });
  return messages;
}

Session loading(const Setting& s, std::function<void(zerolab::TrainingPlugins&, int)> change) {
  Session session{.experiment = resumable(s, 0), .ranks = s.ranks, .from = "run", .step = 4};
  session.experiment.steps = 8;
  session.change_plugins = std::move(change);
  return session;
}

/// Has one more parameter than the awkward model, and another vocabulary.
class GrownModel : public AwkwardModel {
 public:
  void declare(zerolab::Parameters& parameters, const zerolab::ModelContext& context) override {
    AwkwardModel::declare(parameters, {context.vocab_size + 2, context.sequence_length});
    parameters.declare("extra", {3}, zerolab::Init::ones());
  }
};

/// Momentum that is kept under any names.
class NamedStates : public zerolab::Optimizer {
 public:
  explicit NamedStates(std::vector<std::string> names) : names_(std::move(names)) {}
  std::vector<std::string> state_names() const override { return names_; }
  void update(std::span<zerolab::OptimizerRange> ranges, const zerolab::UpdateStep& step) override {
    for (zerolab::OptimizerRange& range : ranges) {
      const at::Tensor gradients = range.gradients.mul(step.gradient_multiplier);
      for (at::Tensor& state : range.states) state.mul_(0.9).add_(gradients);
      range.parameters.sub_(range.states.front(), step.lr);
    }
  }

 private:
  std::vector<std::string> names_;
};

auto with_states(std::vector<std::string> names) {
  return [names](zerolab::TrainingPlugins& plugins, int) {
    plugins.optimizer = std::make_unique<NamedStates>(names);
  };
}

/// Spoils one element of one rank's memory after it was loaded.
class Spoiled : public WrappedSharding {
 public:
  using Spoil = std::function<void(zerolab::Sharding&, zerolab::Parameters&)>;
  Spoiled(std::unique_ptr<zerolab::Sharding> inner, Spoil spoil)
      : WrappedSharding(std::move(inner)), spoil_(std::move(spoil)) {}
  void attach(const zerolab::ShardingContext& context) override {
    parameters_ = &context.parameters;
    WrappedSharding::attach(context);
  }
  void state_restored() override {
    WrappedSharding::state_restored();
    spoil_(*this, *parameters_);
  }

 private:
  Spoil spoil_;
  zerolab::Parameters* parameters_ = nullptr;
};

/// Loads its shards, and leaves what the model computes with as it was.
class Forgetful : public WrappedSharding {
 public:
  using WrappedSharding::WrappedSharding;
  void state_restored() override {}
};

/// The first error of ranks that load, of which `bad` is spoiled; "it loaded" without one.
std::string error_of_spoiled(const Setting& s, int bad, const Spoiled::Spoil& spoil) {
  const Session session = loading(s, [&](zerolab::TrainingPlugins& plugins, int rank) {
    if (rank != bad) return;
    plugins.sharding = std::make_unique<Spoiled>(std::move(plugins.sharding), spoil);
  });
  std::vector<std::string> messages(static_cast<size_t>(s.ranks), "it loaded");
  on_ranks(session, [&](StandingRank& rank) {
    try {
      load(session, rank, 4);
    } catch (const zerolab::Error& error) {
      messages[static_cast<size_t>(rank.world.rank())] = error.what();
    }
  });
  for (const std::string& message : messages) CHECK(message == messages.front());
  return messages.front();
}

/// Flips the sign of the last element of a tensor.
void flip(const at::Tensor& data) {
  data.narrow(0, data.numel() - 1, 1).neg_();
}

}  // namespace

TEST_CASE("a checkpoint of another model is refused, and nothing is written") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    INFO(strategy);
    const zerolab::ScratchFolder scratch;
    const Setting s = setting(strategy);
    save(s);
    const auto grown = [](zerolab::TrainingPlugins& plugins, int) {
      plugins.model = std::make_unique<GrownModel>();
    };
    for (const std::string& message : refusals(loading(s, grown))) {
      CHECK_THAT(message, Catch::Matchers::Contains("is of another model"));
      CHECK_THAT(message, Catch::Matchers::Contains("'extra' is not in it"));
      CHECK_THAT(message, Catch::Matchers::Contains(
                              "'embedding' is [13, 11] there and [15, 11] in the model"));
    }
  }
}

TEST_CASE("a checkpoint with a parameter that the model lacks is refused") {
  const zerolab::ScratchFolder scratch;
  const Setting s = setting("ddp");
  Session session{.experiment = resumable(s, 0), .ranks = s.ranks, .run = "run"};
  session.change_plugins = [](zerolab::TrainingPlugins& plugins, int) {
    plugins.model = std::make_unique<GrownModel>();
  };
  train(session);
  for (const std::string& message : refusals(loading(s, {}))) {
    CHECK_THAT(message, Catch::Matchers::Contains("'extra' is not in the model"));
    CHECK_THAT(message, Catch::Matchers::Contains("'embedding' is [15, 11] there"));
  }
}

TEST_CASE("an optimizer with states of other names is refused, and nothing is written") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    INFO(strategy);
    const zerolab::ScratchFolder scratch;
    const Setting s = setting(strategy);
    save(s);
    for (const std::string& message : refusals(loading(s, with_states({"exp_avg", "velocity"})))) {
      CHECK_THAT(message, Catch::Matchers::Contains("no optimizer state 'velocity'"));
    }
  }
}

TEST_CASE("in a fork, states that the checkpoint lacks start at zero, with a note") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    INFO(strategy);
    const zerolab::ScratchFolder scratch;
    const Setting s = setting(strategy);
    save(s);
    Session session = loading(s, with_states({"exp_avg", "velocity"}));
    session.fork = true;
    Tensors loaded;
    std::mutex mutex;
    on_ranks(session, [&](StandingRank& rank) {
      const auto notes = load(session, rank, 4);
      const std::lock_guard lock(mutex);
      CHECK(notes == std::vector<std::string>{
                         "the checkpoint holds no optimizer state 'velocity': it starts at zero"});
      collect_state(rank.trainer.sharding().state(), loaded);
    });
    const Tensors saved = saved_tensors("run", 4);
    for (const auto& [name, tensor] : loaded) {
      INFO(name);
      if (name.ends_with("/velocity")) {
        CHECK(tensor.count_nonzero().item<int64_t>() == 0);
      } else {
        CHECK(zerolab::deviation(tensor, saved.at(name)).num_differing == 0);
      }
    }
    const History forked = train(session);
    CHECK(forked.point.step == 8);
    CHECK(forked.point.applied_updates == 8);
  }
}

// Its first update would be taken for one of many: no bias correction of averages that are zero.
TEST_CASE(
    "in a fork, an optimizer all of whose states start at zero counts its updates from there") {
  const zerolab::ScratchFolder scratch;
  const Setting s = setting("zero2");
  save(s);
  Session session = loading(s, with_states({"momentum", "velocity"}));
  session.fork = true;
  const History forked = train(session);
  CHECK(forked.point.step == 8);
  CHECK(forked.point.applied_updates == 4);
}

TEST_CASE("a rank that holds a frozen parameter otherwise than the others is noticed") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    for (const int ranks : {2, 3, 4}) {
      INFO(strategy << " on " << ranks);
      const zerolab::ScratchFolder scratch;
      save(setting(strategy, ranks));
      const std::string message =
          error_of_spoiled(setting(strategy, ranks), ranks - 1, [](auto&, auto& parameters) {
            const int64_t frozen = parameters.find("block.1.frozen");
            flip(parameters.tensor(static_cast<size_t>(frozen)).detach().flatten());
          });
      CHECK_THAT(message, Catch::Matchers::Contains("'block.1.frozen'"));
      CHECK_THAT(message,
                 Catch::Matchers::Contains("rank " + std::to_string(ranks - 1) + " holds"));
      CHECK_THAT(message, Catch::Matchers::Contains("otherwise than rank 0"));
    }
  }
}

TEST_CASE("copies of what is trained are compared where there are any") {
  Setting whole = setting("ddp", 3), groups = setting("hsdp", 4);
  groups.options["shard_size"] = int64_t{2};
  for (const Setting& s : {whole, groups}) {
    for (const char* state : {"parameter", "exp_avg_sq"}) {
      INFO(s.sharding << ", " << state);
      const zerolab::ScratchFolder scratch;
      save(s);
      const std::string message = error_of_spoiled(s, 2, [&](auto& sharding, auto&) {
        for (const zerolab::StatePiece& piece : sharding.state()) {
          if (piece.state != state || piece.length < 2) continue;
          flip(piece.data);
          return;
        }
      });
      CHECK_THAT(message, Catch::Matchers::Contains("rank 2 holds"));
      CHECK_THAT(message, Catch::Matchers::Contains("otherwise than rank 0 does"));
    }
  }
}

TEST_CASE("a strategy that does not publish what was loaded is noticed") {
  const zerolab::ScratchFolder scratch;
  const Setting s = setting("zero2", 3);
  save(s);
  const Session session = loading(s, [](zerolab::TrainingPlugins& plugins, int) {
    plugins.sharding = std::make_unique<Forgetful>(std::move(plugins.sharding));
  });
  on_ranks(session, [&](StandingRank& rank) {
    CHECK_THROWS_WITH(load(session, rank, 4), Catch::Matchers::Contains("computes with") &&
                                                  Catch::Matchers::Contains("state_restored()"));
  });
}

TEST_CASE("ranks that are not spoiled load alike") {
  const zerolab::ScratchFolder scratch;
  save(setting("ddp", 3));
  CHECK(error_of_spoiled(setting("ddp", 3), 1, [](auto&, auto&) {}) == "it loaded");
}
