#include "train/session.h"

#include <system_error>

#include "zerolab/error.h"

#include "store/checkpoint_folder.h"
#include "store/mirror.h"
#include "store/run_folder.h"
#include "train/checkpoint_loader.h"
#include "train/initial_weights.h"
#include "train/rank_run.h"

namespace zerolab {

namespace fs = std::filesystem;

namespace {

/// How the run was cut; without a checkpoint its own configuration says so.
SavedRun cut_of(const RunRequest& request) {
  SavedRun saved = saved_run(request.from);
  if (saved.total_batch_size > 0) return saved;
  const ExperimentFile file = ExperimentFile::load(request.from.run / kConfigName, {});
  PluginHost host(search_for(request.source, file));
  const BatchConfig batch = file.resolve(host, saved.ranks).batch;
  saved.total_batch_size = batch.total_batch_size;
  saved.micro_batch_size = batch.micro_batch_size;
  saved.gradient_accumulation_steps = batch.gradient_accumulation_steps;
  return saved;
}

/// What the run to go on from was started with, cut for these ranks.
ExperimentRequest source_of(const RunRequest& request, int num_ranks) {
  ExperimentRequest source = request.source;
  if (request.start == RunRequest::Start::kNew) return source;
  if (source.experiment.empty()) source.experiment = request.from.run / kConfigName;
  if (request.start == RunRequest::Start::kFork) {
    const int64_t step = readable_step(request.from);
    if (step >= 0) source.experiment = CheckpointFolder(request.from.run).path(step) / kConfigName;
  }
  std::vector<std::string> overrides =
      batch_overrides(cut_of(request), num_ranks, source.overrides);
  overrides.insert(overrides.end(), source.overrides.begin(), source.overrides.end());
  source.overrides = std::move(overrides);
  return source;
}

/// A fork begins with its checkpoint's weights: to ask for others would have no effect.
void check_fork_keeps_weights(const Experiment& before, const Experiment& after) {
  if (before.init_from == after.init_from) return;
  throw ConfigError(
      "key 'init_from': a fork begins with the weights of its checkpoint; leave the key out, or "
      "start a new run with `zerolab run` and init_from = \"RUN@STEP\".");
}

}  // namespace

std::string no_checkpoint_to_fork(const fs::path& run) {
  return run.string() +
         ": has no checkpoint to fork; a run makes them with checkpoint.every, and at its end.";
}

void check_before_launch(const RunRequest& request, int num_ranks) {
  const ExperimentRequest source = source_of(request, num_ranks);
  const ExperimentFile file = ExperimentFile::load(source.experiment, source.overrides);
  PluginHost host(search_for(source, file));
  const Experiment experiment = resolve_for_training(file, host, num_ranks);
  if (!experiment.checkpoint.mirror.empty()) Mirror::check(experiment.checkpoint.mirror);
  if (request.start == RunRequest::Start::kNew) {
    if (!experiment.init_from.empty()) check_initial_weights(experiment.init_from);
    return;
  }
  const int64_t step = readable_step(request.from);
  if (request.start == RunRequest::Start::kFork && step < 0) {
    throw ConfigError(no_checkpoint_to_fork(request.from.run));
  }
  const auto before = experiment_before(request.from, step, host);
  if (request.start == RunRequest::Start::kFork) {
    check_fork_keeps_weights(before, experiment);
    return;
  }
  check_unchanged(before, experiment, host, request.from.run.string());
}

std::optional<fs::path> newest_run_of(const ExperimentRequest& source, int num_ranks) {
  const ExperimentFile file = ExperimentFile::load(source.experiment, source.overrides);
  PluginHost host(search_for(source, file));
  return RunFolder::newest(file.resolve(host, num_ranks).name);
}

bool is_finished(const fs::path& run) {
  std::error_code error;
  return fs::is_regular_file(run / "summary.json", error);
}

int run_rank(const RunRequest& asked, const RankEnvironment& environment) {
  RunRequest request = asked;
  if (!environment.restart_of.empty()) {
    request.start = RunRequest::Start::kResume;
    request.from = parse_checkpoint_name(environment.restart_of);
  }
  request.source = source_of(request, environment.size);
  return run_as_rank(request.source, environment, [&](JoinedRank& joined) {
    RankRun run(request, joined);
    try {
      return run.run();
    } catch (const Error& error) {
      // At once: what ends with the run may have to wait for a disk.
      joined.world.report_failure(static_cast<int>(error.exit_code()), error.what());
      throw;
    }
  });
}

}  // namespace zerolab
