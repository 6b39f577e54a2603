// What becomes a checkpoint and what does not: values that are not finite, disks that fail, and
// memory that changes while it is copied.

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <mutex>
#include <set>

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

/// A disk without room for the checkpoint of one step: for its files, or for its final name alone.
class FullDisk : public zerolab::FileLayer {
 public:
  enum class Fault { kWrite, kRename };
  FullDisk(std::string step, Fault fault) : step_(std::move(step)), fault_(fault) {}

  int create(const std::filesystem::path& path) override {
    const int descriptor = FileLayer::create(path);
    const std::lock_guard lock(mutex_);
    full_.erase(descriptor);
    if (fault_ == Fault::kWrite && is_of_step(path)) full_.insert(descriptor);
    return descriptor;
  }
  ssize_t write(int descriptor, const char* data, size_t size) override {
    {
      const std::lock_guard lock(mutex_);
      if (full_.count(descriptor) == 0) return FileLayer::write(descriptor, data, size);
    }
    errno = ENOSPC;
    return -1;
  }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    if (fault_ != Fault::kRename || !is_of_step(from)) return FileLayer::rename(from, to);
    errno = ENOSPC;
    return -1;
  }

 private:
  bool is_of_step(const std::filesystem::path& path) const {
    return path.string().find(step_) != std::string::npos;
  }
  std::string step_;
  Fault fault_;
  std::mutex mutex_;
  std::set<int> full_;  // descriptors
};

/// Where the disk of one rank is full.
struct DiskFault {
  int rank = 0;
  FullDisk::Fault fault = FullDisk::Fault::kWrite;
};
constexpr DiskFault kFaults[] = {
    {0, FullDisk::Fault::kWrite}, {2, FullDisk::Fault::kWrite}, {0, FullDisk::Fault::kRename}};

std::string title(const DiskFault& fault, bool async) {
  return "rank " + std::to_string(fault.rank) +
         (fault.fault == FullDisk::Fault::kWrite ? ", writing" : ", renaming") +
         (async ? ", saved behind" : ", saved at once");
}

/// The session with that fault. `disk` outlives it.
Session faulty(Session session, const DiskFault& fault, FullDisk& disk) {
  session.files.assign(static_cast<size_t>(session.ranks), &zerolab::real_files());
  session.files[static_cast<size_t>(fault.rank)] = &disk;
  return session;
}

/// One more tensor, which takes long to copy; each update changes all of it, first of all.
class LongState : public WrappedSharding {
 public:
  static constexpr int64_t kLength = int64_t{8} << 20;
  explicit LongState(std::unique_ptr<zerolab::Sharding> inner)
      : WrappedSharding(std::move(inner)),
        counter_(at::full({kLength}, 0, at::TensorOptions().dtype(at::kFloat))) {}
  void update(const zerolab::UpdateStep& step) override {
    const at::NoGradGuard no_grad;
    counter_.fill_(static_cast<double>(step.step));
    WrappedSharding::update(step);
  }
  std::vector<zerolab::StatePiece> state() override {
    std::vector<zerolab::StatePiece> pieces = WrappedSharding::state();
    pieces.push_back({"counter", "parameter", {kLength}, 0, kLength, counter_});
    return pieces;
  }

 private:
  at::Tensor counter_;
};

/// What is one rank's own, and changes with every micro-batch.
class BusyState : public WrappedSharding {
 public:
  static constexpr int64_t kLength = int64_t{4} << 20;
  explicit BusyState(std::unique_ptr<zerolab::Sharding> inner)
      : WrappedSharding(std::move(inner)),
        counter_(at::full({kLength}, 0, at::TensorOptions().dtype(at::kFloat))) {}
  void begin_micro_batch(bool last) override {
    const at::NoGradGuard no_grad;
    counter_.add_(1);
    WrappedSharding::begin_micro_batch(last);
  }
  std::vector<zerolab::LocalState> local_state() override { return {{"counter", counter_}}; }

 private:
  at::Tensor counter_;
};

/// Ranks with such a strategy, which save every second step behind training.
template <class Changed>
std::vector<int64_t> save_often(int ranks) {
  Session session = saving(setting("ddp", ranks), true);
  session.experiment.checkpoint.every = 2;
  session.experiment.checkpoint.keep_last = 99;
  session.change_plugins = [](zerolab::TrainingPlugins& plugins, int) {
    plugins.sharding = std::make_unique<Changed>(std::move(plugins.sharding));
  };
  return train(session).published;
}

/// How many values are `expected`.
int64_t count(const std::vector<float>& values, int64_t expected) {
  return std::count(values.begin(), values.end(), static_cast<float>(expected));
}

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
  const Setting s = setting("zero1", 3);
  for (const bool async : {false, true}) {
    for (const DiskFault& fault : kFaults) {
      INFO(title(fault, async));
      const zerolab::ScratchFolder scratch;
      FullDisk disk("step-000000008", fault.fault);
      const auto failed = failures(faulty(saving(s, async), fault, disk));
      for (const Failure& failure : failed) {
        CHECK(failure.exit_code == static_cast<int>(zerolab::ExitCode::kStore));
        CHECK(failure.message == failed.front().message);
        CHECK_THAT(failure.message, Catch::Matchers::Contains("No space left on device"));
        CHECK_THAT(failure.message, Catch::Matchers::Contains("step-000000008"));
      }
      CHECK(steps_of("run") == std::vector<int64_t>{4});
      Session rest{.experiment = resumable(s, 0), .ranks = 3, .from = "run", .step = 4};
      rest.same_owners = true;
      CHECK(train(rest).point.step == 12);
    }
  }
}

TEST_CASE("with on_error = \"continue\" it is told once, and the next checkpoints are there") {
  const Setting s = setting("zero1", 3);
  const History sound = train({.experiment = resumable(s, 0), .ranks = 3});
  for (const bool async : {false, true}) {
    for (const DiskFault& fault : kFaults) {
      INFO(title(fault, async));
      const zerolab::ScratchFolder scratch;
      FullDisk disk("step-000000004", fault.fault);
      Session session = faulty(saving(s, async), fault, disk);
      session.experiment.checkpoint.on_error = "continue";
      const History history = train(session);
      CHECK(history.published == std::vector<int64_t>{8, 12});
      CHECK(steps_of("run") == history.published);
      REQUIRE(history.told.size() == 1);
      CHECK_THAT(history.told.front(),
                 Catch::Matchers::Contains("the checkpoint of step 4 is not there, and training"));
      CHECK_THAT(history.told.front(), Catch::Matchers::Contains("No space left on device"));
      check_same_end(sound, history);
      check_same_bits(sound.state, saved_tensors("run", 12));
    }
  }
}

TEST_CASE("an update waits until what it changes is copied") {
  for (const int ranks : {1, 2}) {
    const zerolab::ScratchFolder scratch;
    const std::vector<int64_t> published = save_often<LongState>(ranks);
    CHECK(published == std::vector<int64_t>{2, 4, 6, 8, 10, 12});
    for (const int64_t step : published) {
      const zerolab::CheckpointReader checkpoint(zerolab::CheckpointFolder("run").path(step));
      const zerolab::PieceInfo* tensor = checkpoint.find("counter", "parameter");
      REQUIRE(tensor != nullptr);
      std::vector<float> values(static_cast<size_t>(LongState::kLength));
      checkpoint.read(*tensor, 0, LongState::kLength, values.data());
      CHECK(count(values, step) == LongState::kLength);
    }
  }
}

TEST_CASE("what is one rank's own may change as soon as the next step begins") {
  for (const int ranks : {1, 2}) {
    const zerolab::ScratchFolder scratch;
    const std::vector<int64_t> published = save_often<BusyState>(ranks);
    CHECK(published == std::vector<int64_t>{2, 4, 6, 8, 10, 12});
    for (const int64_t step : published) {
      const zerolab::CheckpointReader checkpoint(zerolab::CheckpointFolder("run").path(step));
      for (int rank = 0; rank < ranks; ++rank) {
        const zerolab::SealedLocal* local = checkpoint.find_local(rank, "counter");
        REQUIRE(local != nullptr);
        std::vector<float> values(static_cast<size_t>(BusyState::kLength));
        checkpoint.read_local(rank, *local, values.data());
        CHECK(count(values, step) == BusyState::kLength);
      }
    }
  }
}
