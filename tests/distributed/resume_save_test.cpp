// What becomes a checkpoint and what does not: values that are not finite, disks that fail, and
// memory that changes while it is copied.

#include <atomic>
#include <limits>
#include <memory>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include "zerolab/error.h"

#include "catch.h"
#include "resume_training.h"
#include "store/checkpoint_folder.h"
#include "unit/store/scratch.h"
#include "wrapped_sharding.h"

namespace {

using zerolab::Kind;

Setting setting(const std::string& sharding, int ranks) {
  Setting s;
  s.sharding = sharding;
  s.ranks = ranks;
  s.steps = 12;
  s.bucket = 1 << 16;
  return s;
}

Session saving(const Setting& s, bool async) {
  return {.experiment = resumable(s, 4, async), .ranks = s.ranks, .run = "run"};
}

std::vector<int64_t> steps_of(const std::filesystem::path& run) {
  return zerolab::CheckpointFolder(run).steps();
}

/// After a number of updates, one element of what this rank holds of a state is not finite.
class Diverging : public WrappedSharding {
 public:
  Diverging(std::unique_ptr<zerolab::Sharding> inner, std::string parameter, std::string state)
      : WrappedSharding(std::move(inner)),
        parameter_(std::move(parameter)),
        state_(std::move(state)) {}
  void update(const zerolab::UpdateStep& step) override {
    WrappedSharding::update(step);
    if (step.step != 8) return;
    for (const zerolab::StatePiece& piece : state()) {
      if (piece.parameter != parameter_ || piece.state != state_ || piece.length == 0) continue;
      if (piece.offset == 0) piece.data.narrow(0, 0, 1).fill_(std::nan(""));
    }
  }

 private:
  std::string parameter_, state_;
};

/// Writing fails while it is broken: everything, or only that names take their final place.
class BreakableFiles : public zerolab::FileLayer {
 public:
  enum class Broken { kNothing, kWrites, kRenames };
  std::atomic<Broken> broken = Broken::kNothing;

  ssize_t write(int descriptor, const char* data, size_t size) override {
    return fails(Broken::kWrites) ? -1 : FileLayer::write(descriptor, data, size);
  }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return fails(Broken::kRenames) ? -1 : FileLayer::rename(from, to);
  }

 private:
  bool fails(Broken what) {
    errno = ENOSPC;
    return broken == what;
  }
};

/// A session with files of which those of rank `bad` are broken in steps [from, to).
class BrokenDisk {
 public:
  BrokenDisk(Session session, int bad, BreakableFiles::Broken how, int64_t from, int64_t to)
      : session_(std::move(session)) {
    for (int rank = 0; rank < session_.ranks; ++rank) {
      files_.push_back(std::make_unique<BreakableFiles>());
      session_.files.push_back(files_.back().get());
    }
    session_.pulse = [=, this](int rank, int64_t step, const char*) {
      if (rank != bad) return;
      files_[static_cast<size_t>(rank)]->broken =
          step >= from && step < to ? how : BreakableFiles::Broken::kNothing;
    };
  }
  const Session& session() const { return session_; }

 private:
  Session session_;
  std::vector<std::unique_ptr<BreakableFiles>> files_;
};

/// State of its own that is long to copy; each update changes all of it at once.
class LongState : public WrappedSharding {
 public:
  static constexpr int64_t kLength = int64_t{4} << 20;
  explicit LongState(std::unique_ptr<zerolab::Sharding> inner)
      : WrappedSharding(std::move(inner)),
        counter_(at::full({kLength}, 0, at::TensorOptions().dtype(at::kFloat))) {}
  void update(const zerolab::UpdateStep& step) override {
    const at::NoGradGuard no_grad;
    counter_.fill_(static_cast<double>(step.step));
    WrappedSharding::update(step);
  }
  std::vector<zerolab::LocalState> local_state() override { return {{"counter", counter_}}; }

 private:
  at::Tensor counter_;
};

}  // namespace

TEST_CASE("a state that is not finite is never published, and every rank says where it is") {
  for (const char* state : {"parameter", "exp_avg"}) {
    for (const bool async : {false, true}) {
      for (const Setting& s : all_strategies(setting("", 4))) {
        INFO(title(s, async) << ", " << state);
        const zerolab::ScratchFolder scratch;
        Session session = saving(s, async);
        session.change_plugins = [&](zerolab::TrainingPlugins& plugins, int) {
          plugins.sharding =
              std::make_unique<Diverging>(std::move(plugins.sharding), "block.0.in", state);
        };
        for (const Failure& failure : failures(session)) {
          CHECK(failure.exit_code == static_cast<int>(zerolab::ExitCode::kDiverged));
          CHECK_THAT(failure.message, Catch::Matchers::Contains(
                                          "no checkpoint of step 8 is published: element 0 of"));
          CHECK_THAT(failure.message, Catch::Matchers::Contains("parameter 'block.0.in'"));
          CHECK_THAT(failure.message, Catch::Matchers::Contains("is not finite on rank "));
        }
        CHECK(steps_of("run") == std::vector<int64_t>{4});
        CHECK_FALSE(std::filesystem::exists(zerolab::CheckpointFolder("run").partial(8)));
        CHECK(saved_tensors("run", 4).count("block.0.in/exp_avg") == 1);
      }
    }
  }
}

TEST_CASE("a disk that fails on any rank stops all of them with its cause") {
  using Broken = BreakableFiles::Broken;
  const std::vector<std::pair<int, Broken>> faults = {
      {0, Broken::kWrites}, {2, Broken::kWrites}, {0, Broken::kRenames}};
  for (const bool async : {false, true}) {
    for (const auto& [bad, how] : faults) {
      INFO("rank " << bad << (async ? ", saved behind" : ", saved at once"));
      const zerolab::ScratchFolder scratch;
      const BrokenDisk disk(saving(setting("zero1", 3), async), bad, how, 8, 100);
      const auto failed = failures(disk.session());
      for (const Failure& failure : failed) {
        CHECK(failure.exit_code == static_cast<int>(zerolab::ExitCode::kStore));
        CHECK(failure.message == failed.front().message);
        CHECK_THAT(failure.message, Catch::Matchers::Contains("No space left on device"));
        CHECK_THAT(failure.message, Catch::Matchers::Contains("step-000000008"));
      }
      CHECK(steps_of("run") == std::vector<int64_t>{4});
      const Session rest{.experiment = resumable(setting("zero1", 3), 0),
                         .ranks = 3,
                         .from = "run",
                         .step = 4,
                         .same_owners = true};
      CHECK(train(rest).point.step == 12);
    }
  }
}

TEST_CASE("with on_error = \"continue\" it is told once, and the next checkpoint is there") {
  using Broken = BreakableFiles::Broken;
  const std::vector<std::pair<int, Broken>> faults = {
      {0, Broken::kWrites}, {2, Broken::kWrites}, {0, Broken::kRenames}};
  const History sound = train({.experiment = resumable(setting("zero1", 3), 0), .ranks = 3});
  for (const bool async : {false, true}) {
    for (const auto& [bad, how] : faults) {
      INFO("rank " << bad << (async ? ", saved behind" : ", saved at once"));
      const zerolab::ScratchFolder scratch;
      Session session = saving(setting("zero1", 3), async);
      session.experiment.checkpoint.on_error = "continue";
      session.experiment.checkpoint.keep_last = 9;
      // Behind training, the disk stays broken until the save is over: the next one waits for it.
      const BrokenDisk disk(session, bad, how, 4, async ? 8 : 5);
      const History history = train(disk.session());
      CHECK(history.published == (async ? history.published : std::vector<int64_t>{8, 12}));
      CHECK(steps_of("run") == history.published);
      CHECK(history.published.back() == 12);
      const size_t expected = 3 - history.published.size();
      CHECK(history.told.size() == expected);
      for (const std::string& message : history.told) {
        CHECK_THAT(message, Catch::Matchers::Contains("is not there, and training goes on"));
        CHECK_THAT(message, Catch::Matchers::Contains("No space left on device"));
      }
      check_same_end(sound, history);
      check_same_bits(sound.state, saved_tensors("run", 12));
    }
  }
}

TEST_CASE("an update waits until what it changes is copied") {
  const zerolab::ScratchFolder scratch;
  for (const int ranks : {1, 2}) {
    const std::string run = "run-" + std::to_string(ranks);
    const Setting s = setting("ddp", ranks);
    Session session = saving(s, true);
    session.run = run;
    session.experiment.checkpoint.every = 2;
    session.experiment.checkpoint.keep_last = 99;
    session.change_plugins = [](zerolab::TrainingPlugins& plugins, int) {
      plugins.sharding = std::make_unique<LongState>(std::move(plugins.sharding));
    };
    const History history = train(session);
    CHECK(history.published == std::vector<int64_t>{2, 4, 6, 8, 10, 12});
    for (const int64_t step : history.published) {
      const zerolab::CheckpointReader checkpoint(zerolab::CheckpointFolder(run).path(step));
      for (int rank = 0; rank < ranks; ++rank) {
        const zerolab::SealedLocal* local = checkpoint.find_local(rank, "counter");
        REQUIRE(local != nullptr);
        std::vector<float> values(static_cast<size_t>(LongState::kLength));
        checkpoint.read_local(rank, *local, values.data());
        const auto expected = static_cast<float>(step);
        CHECK(std::count(values.begin(), values.end(), expected) == LongState::kLength);
      }
    }
  }
}
