#include "resume_training.h"

#include <cmath>
#include <mutex>
#include <optional>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include "zerolab/error.h"

#include "awkward_model.h"
#include "catch.h"
#include "memory_ranks.h"
#include "store/checkpoint_folder.h"
#include "train/checkpointer.h"
#include "train/saved_state.h"
#include "train/training_loop.h"
#include "train/whole_state.h"

namespace {

using zerolab::Kind;

/// Remembers which training samples were asked for.
class RecordingData : public CountingData {
 public:
  void sample(zerolab::Split split, int64_t index, std::span<int64_t> tokens,
              std::span<int64_t> targets) const override {
    if (split == zerolab::Split::kTrain) asked_.push_back(index);
    CountingData::sample(split, index, tokens, targets);
  }
  std::vector<int64_t> take() { return std::exchange(asked_, {}); }

 private:
  mutable std::vector<int64_t> asked_;
};

/// What one rank of a session has and saw.
struct Rank {
  zerolab::TrainingPlugins plugins;
  RecordingData* data = nullptr;
  std::vector<std::vector<int64_t>> samples;  // of each step, this rank's
};

class Witness : public zerolab::TrainingObserver {
 public:
  Witness(const zerolab::Experiment& experiment, Rank& rank, History* history)
      : batch_(experiment.batch), rank_(rank), history_(history) {}
  void on_step(const zerolab::StepRecord& record) override {
    std::vector<int64_t> asked = rank_.data->take();
    // A diagnosis asks for the step's samples again.
    asked.resize(static_cast<size_t>(batch_.micro_batch_size * batch_.gradient_accumulation_steps));
    rank_.samples.push_back(std::move(asked));
    if (history_ != nullptr) history_->steps.push_back(record);
  }
  void on_rollback(int64_t step, const std::string& reason) override {
    if (history_ != nullptr) history_->rollbacks.emplace_back(step, reason);
  }

 private:
  const zerolab::BatchConfig& batch_;
  Rank& rank_;
  History* history_;
};

std::vector<Rank> make_ranks(const Session& session) {
  std::vector<Rank> ranks(static_cast<size_t>(session.ranks));
  for (size_t r = 0; r < ranks.size(); ++r) {
    zerolab::TrainingPlugins& p = ranks[r].plugins;
    auto data = std::make_unique<RecordingData>();
    ranks[r].data = data.get();
    p.data = std::move(data);
    p.model = std::make_unique<AwkwardModel>();
    p.optimizer = host().create<zerolab::Optimizer>(session.experiment);
    p.scheduler = host().create<zerolab::Scheduler>(session.experiment);
    p.precision = host().create<zerolab::Precision>(session.experiment);
    p.sharding = host().create<zerolab::Sharding>(session.experiment);
    if (session.change_plugins) session.change_plugins(p, static_cast<int>(r));
  }
  return ranks;
}

zerolab::CheckpointerSettings settings_of(const Session& session, int rank, History& history) {
  const zerolab::BatchConfig& batch = session.experiment.batch;
  zerolab::CheckpointerSettings settings;
  settings.config = session.experiment.checkpoint;
  settings.run = session.run;
  settings.manifest.run = {
      session.experiment.name, session.ranks,          1,
      batch.total_batch_size,  batch.micro_batch_size, batch.gradient_accumulation_steps};
  if (rank != 0) return settings;
  settings.published = [&](int64_t step) { history.published.push_back(step); };
  settings.tell = [&](const std::string& message) { history.told.push_back(message); };
  return settings;
}

/// One rank's session, from loading to the end.
void train_rank(const Session& session, Rank& rank, StandingRank standing, History& history) {
  const int number = standing.world.rank();
  zerolab::Trainer& trainer = standing.trainer;
  if (session.pulse) {
    trainer.set_pulse([&](int64_t step, const char* phase) { session.pulse(number, step, phase); });
  }
  if (!session.from.empty()) {
    auto notes = load(session, standing, session.step);
    if (number == 0) history.notes = std::move(notes);
  }
  std::optional<zerolab::Checkpointer> checkpoints;
  if (!session.run.empty()) {
    zerolab::FileLayer& files =
        session.files.empty() ? zerolab::real_files() : *session.files[static_cast<size_t>(number)];
    checkpoints.emplace(settings_of(session, number, history), standing.world, trainer.sharding(),
                        trainer.parameters(), files);
  }
  Witness witness(session.experiment, rank, number == 0 ? &history : nullptr);
  Session going_back = session;
  going_back.from = session.run;
  going_back.same_owners = true;
  going_back.change_point = {};
  zerolab::TrainingLoop loop(
      session.experiment, trainer,
      {witness, checkpoints ? &*checkpoints : nullptr,
       [&] { return session.stop_after > 0 && trainer.finished_steps() + 1 >= session.stop_after; },
       [&] {
         const auto steps = zerolab::CheckpointFolder(session.run).steps();
         if (steps.empty()) return false;
         load(going_back, standing, steps.back());
         return true;
       }});
  const zerolab::RunResult result = loop.run();
  if (number == 0) history.stopped = result.stopped;
}

/// Ranks' samples of each step in the order of global micro-batches.
std::vector<std::vector<int64_t>> in_global_order(const std::vector<Rank>& ranks, size_t micro) {
  std::vector<std::vector<int64_t>> steps(ranks.front().samples.size());
  for (size_t step = 0; step < steps.size(); ++step) {
    for (size_t at = 0; at < ranks.front().samples[step].size(); at += micro) {
      for (const Rank& rank : ranks) {
        const auto begin = rank.samples[step].begin() + static_cast<std::ptrdiff_t>(at);
        steps[step].insert(steps[step].end(), begin, begin + static_cast<std::ptrdiff_t>(micro));
      }
    }
  }
  return steps;
}

/// All ranks' sessions; errors go to `failed` if there is one.
History run_session(const Session& session, std::vector<Failure>* failed) {
  at::set_num_threads(1);
  if (!session.run.empty()) std::filesystem::create_directories(session.run);
  std::vector<Rank> ranks = make_ranks(session);
  History history;
  std::mutex mutex;
  run_in_memory(session.ranks, [&](zerolab::Communicator& world) {
    const auto number = static_cast<size_t>(world.rank());
    Rank& rank = ranks[number];
    zerolab::Trainer trainer(session.experiment, rank.plugins, world);
    try {
      train_rank(session, rank, {world, trainer}, history);
    } catch (const zerolab::Error& error) {
      if (failed == nullptr) throw;
      (*failed)[number] = {static_cast<int>(error.exit_code()), error.what()};
      return;
    }
    const std::lock_guard lock(mutex);
    collect_state(zerolab::training_state(trainer.sharding(), trainer.parameters()), history.state);
    if (number == 0) history.point = trainer.point();
  });
  if (failed == nullptr) {
    history.samples =
        in_global_order(ranks, static_cast<size_t>(session.experiment.batch.micro_batch_size));
  }
  return history;
}

}  // namespace

History train(const Session& session) {
  return run_session(session, nullptr);
}

std::vector<Failure> failures(const Session& session, History* history) {
  std::vector<Failure> failed(static_cast<size_t>(session.ranks));
  History told = run_session(session, &failed);
  if (history != nullptr) *history = std::move(told);
  return failed;
}

void on_ranks(const Session& session, const std::function<void(StandingRank&)>& body) {
  at::set_num_threads(1);
  std::vector<Rank> ranks = make_ranks(session);
  run_in_memory(session.ranks, [&](zerolab::Communicator& world) {
    zerolab::Trainer trainer(session.experiment, ranks[static_cast<size_t>(world.rank())].plugins,
                             world);
    StandingRank standing{world, trainer};
    body(standing);
  });
}

std::vector<std::string> load(const Session& session, StandingRank& rank, int64_t step) {
  const zerolab::CheckpointReader checkpoint(zerolab::CheckpointFolder(session.from).path(step));
  zerolab::Trainer& trainer = rank.trainer;
  const zerolab::LoadRequest request{checkpoint,          trainer.sharding(), trainer.parameters(),
                                     trainer.optimizer(), session.fork,       session.same_owners};
  auto notes = zerolab::load_state(request, rank.world);
  zerolab::TrainingPoint point = zerolab::loaded_point(request);
  if (session.change_point) session.change_point(point);
  trainer.go_on(std::move(point));
  return notes;
}

std::vector<at::Tensor> copied_state(zerolab::Trainer& trainer) {
  std::vector<at::Tensor> copies;
  for (const zerolab::StatePiece& piece :
       zerolab::training_state(trainer.sharding(), trainer.parameters())) {
    copies.push_back(piece.data.clone());
  }
  return copies;
}

zerolab::Experiment resumable(const Setting& setting, int64_t every, bool async) {
  zerolab::Experiment e = experiment_of(setting);
  zerolab::PluginChoice& scheduler = e.plugins[static_cast<size_t>(Kind::kScheduler)];
  scheduler = {"cosine", host().entry(Kind::kScheduler, "cosine").schema().defaults()};
  scheduler.options["lr"] = 0.01;
  scheduler.options["warmup_steps"] = setting.steps / 4;
  e.evaluation.every = 10;
  e.checkpoint.every = every;
  e.checkpoint.async = async;
  return e;
}

std::string title(const Setting& setting, bool async) {
  std::string text = title(setting) + (async ? ", saved behind" : ", saved at once");
  const auto group = setting.options.find("shard_size");
  if (group != setting.options.end()) {
    text += ", groups of " + std::to_string(std::get<int64_t>(group->second));
  }
  return text;
}

std::vector<Setting> all_strategies(const Setting& setting) {
  std::vector<Setting> all;
  for (const std::string& name : host().names(Kind::kSharding)) {
    all.push_back(setting);
    all.back().sharding = name;
    const bool groups = host().entry(Kind::kSharding, name).schema().find("shard_size") != nullptr;
    if (!groups || setting.ranks != 4) continue;
    all.push_back(all.back());
    all.back().options["shard_size"] = int64_t{2};
    all.back().options["stage"] = int64_t{1};
  }
  return all;
}

Tensors saved_tensors(const std::filesystem::path& run, int64_t step) {
  const zerolab::CheckpointReader checkpoint(zerolab::CheckpointFolder(run).path(step));
  Tensors tensors;
  for (const zerolab::PieceInfo& info : checkpoint.tensors()) {
    REQUIRE(info.dtype == zerolab::TensorDtype::kFloat32);
    at::Tensor& tensor = tensors[info.parameter + "/" + info.state];
    tensor = at::full({info.length}, std::nan(""), at::TensorOptions().dtype(at::kFloat));
    checkpoint.read(info, 0, info.length, tensor.mutable_data_ptr());
  }
  return tensors;
}

zerolab::TrainingPoint saved_point(const std::filesystem::path& run, int64_t step) {
  return zerolab::CheckpointFolder(run).manifest(step).point;
}

void check_same_steps(const History& whole, const History& part) {
  REQUIRE(whole.steps.size() >= part.steps.size());
  REQUIRE_FALSE(part.steps.empty());
  const size_t skipped = whole.steps.size() - part.steps.size();
  for (size_t i = 0; i < part.steps.size(); ++i) {
    const zerolab::StepRecord &a = whole.steps[skipped + i], &b = part.steps[i];
    INFO("step " << a.step);
    REQUIRE(a.step == b.step);
    CHECK(a.loss == b.loss);
    CHECK(a.lr == b.lr);
    CHECK(a.grad_norm == b.grad_norm);
    CHECK(a.tokens == b.tokens);
    CHECK(a.skipped == b.skipped);
    CHECK(a.loss_scale == b.loss_scale);
    CHECK(a.evaluated == b.evaluated);
    if (a.evaluated) CHECK(a.val_loss == b.val_loss);
    CHECK(whole.samples[skipped + i] == part.samples[i]);
  }
}

void check_same_point(const zerolab::TrainingPoint& a, const zerolab::TrainingPoint& b) {
  CHECK(a.step == b.step);
  CHECK(a.applied_updates == b.applied_updates);
  CHECK(a.skipped_steps == b.skipped_steps);
  CHECK(a.tokens == b.tokens);
  CHECK(a.next_sample == b.next_sample);
  CHECK(a.seed == b.seed);
  CHECK((a.val_loss == b.val_loss || (std::isnan(a.val_loss) && std::isnan(b.val_loss))));
  CHECK(a.precision == b.precision);
  CHECK(a.recent_losses == b.recent_losses);
  CHECK(a.skips_in_a_row == b.skips_in_a_row);
  CHECK(a.rollbacks == b.rollbacks);
}

void check_same_bits(const Tensors& a, const Tensors& b) {
  REQUIRE_FALSE(a.empty());
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : a) {
    INFO(name);
    REQUIRE(b.count(name) == 1);
    REQUIRE(tensor.numel() == b.at(name).numel());
    CHECK(zerolab::deviation(tensor, b.at(name)).num_differing == 0);
    CHECK(tensor.isfinite().all().item<bool>());
  }
}

void check_same_end(const History& whole, const History& part) {
  check_same_steps(whole, part);
  check_same_point(whole.point, part.point);
  check_same_bits(whole.state, part.state);
}
