#include "train/checkpoint_loader.h"

#include <system_error>
#include <utility>

#include "zerolab/error.h"
#include "zerolab/log.h"

#include "store/checkpoint_folder.h"
#include "store/checkpoint_reader.h"
#include "store/run_folder.h"
#include "train/saved_state.h"

namespace zerolab {

namespace fs = std::filesystem;

std::string short_path(const fs::path& path) {
  std::error_code error;
  const fs::path near = fs::proximate(path, error);
  return (error ? path : near).string();
}

Experiment experiment_before(const CheckpointName& name, int64_t step, PluginHost& host) {
  const CheckpointFolder folder(name.run);
  const bool saved = step >= 0;
  fs::path config = name.run / kConfigName;
  int ranks = saved_run(name).ranks;
  if (saved) {
    config = folder.path(step) / kConfigName;
    folder.text(step, kConfigName);  // as it was saved, or an error
    ranks = folder.manifest(step).run.ranks;
  }
  return ExperimentFile::load(config, {}).resolve(host, ranks);
}

CheckpointLoader::CheckpointLoader(JoinedRank& joined, Trainer& trainer, std::string data)
    : joined_(joined), trainer_(trainer), data_(std::move(data)) {}

int64_t CheckpointLoader::load(const CheckpointName& name, bool fork) {
  const int64_t step = find_whole(name);
  if (step < 0) return step;
  const Experiment before = experiment_before(name, step, joined_.host);
  if (!fork) {
    notes_ = check_unchanged(before, joined_.experiment, joined_.host, short_path(name.run));
  }
  load_step(name.run, step, before, fork);
  return step;
}

bool CheckpointLoader::load_newest(const fs::path& own_run) {
  const int64_t step = find_whole({own_run});
  if (joined_.ranks.rank() == 0) tell_damaged(own_run, step);
  if (step < 0) return false;
  load_step(own_run, step, joined_.experiment, false);
  return true;
}

/// -1 if the run has none at all.
int64_t CheckpointLoader::find_whole(const CheckpointName& name) {
  std::vector<int64_t> candidates;
  if (joined_.ranks.rank() == 0) candidates = candidate_steps(name);
  damaged_.clear();
  const auto step = choose_whole(
      name.run, candidates, joined_.ranks,
      [&](int64_t step, const std::string& damage) {
        if (!name.newest()) throw StoreError(damage);
        damaged_.emplace_back(step, damage);
      },
      [this] { trainer_.enter("loading"); });
  if (!step && !damaged_.empty()) {
    throw StoreError(short_path(name.run) + ": none of its " + std::to_string(damaged_.size()) +
                     " checkpoints is whole; fetch one from a mirror, or start another run (" +
                     damaged_.front().second + ")");
  }
  return step.value_or(-1);
}

/// Out of the way of the checkpoints to come, and kept to be looked at.
void CheckpointLoader::tell_damaged(const fs::path& own_run, int64_t used) const {
  const CheckpointFolder folder(own_run);
  for (const auto& [step, damage] : damaged_) {
    std::string what =
        "the checkpoint of step " + std::to_string(step) + " is damaged and not used";
    if (!own_run.empty()) {
      fs::path aside = folder.path(step);
      aside += ".damaged";
      std::error_code error;
      fs::remove_all(aside, error);
      fs::rename(folder.path(step), aside, error);
      if (!error) what += " (it is now " + short_path(aside) + ")";
    }
    log::warning(what + ": " + damage);
  }
  if (damaged_.empty() || used < 0) return;
  log::warning("going on from the checkpoint of step " + std::to_string(used));
}

void CheckpointLoader::load_step(const fs::path& run, int64_t step, const Experiment& before,
                                 bool fork) {
  const CheckpointReader checkpoint(CheckpointFolder(run).path(step));
  const CheckpointManifest& manifest = checkpoint.manifest();
  check_data(run, manifest.run, fork);
  const PluginChoice &was = before.plugin(Kind::kSharding),
                     &is = joined_.experiment.plugin(Kind::kSharding);
  const bool same_owners = manifest.run.ranks == joined_.ranks.size() && was.name == is.name &&
                           was.options == is.options;
  const LoadRequest request{checkpoint,
                            trainer_.sharding(),
                            trainer_.parameters(),
                            trainer_.optimizer(),
                            fork,
                            same_owners,
                            [this] { trainer_.enter("loading"); }};
  for (std::string& note : load_state(request, joined_.ranks)) notes_.push_back(std::move(note));
  TrainingPoint point = loaded_point(request);
  point.seed = joined_.experiment.seed;  // another one in a fork
  trainer_.go_on(std::move(point));
  note_differences(manifest, before);
}

/// A run goes on with the data that it began with, a fork with any. Errors: ConfigError.
void CheckpointLoader::check_data(const fs::path& run, const SavedRun& saved, bool fork) {
  if (saved.data_xxh128.empty() || saved.data_xxh128 == data_) return;
  if (fork) {
    notes_.push_back("the data are not those that the checkpoint was trained on");
    return;
  }
  throw ConfigError(short_path(run) +
                    " cannot go on with other data: what [data] names holds other samples than "
                    "when the run saved; put it back as it was, or use `zerolab fork` to start "
                    "another run from the checkpoint.");
}

/// What keeps results within rounding, but not to the last bit.
void CheckpointLoader::note_differences(const CheckpointManifest& manifest,
                                        const Experiment& before) {
  const SavedRun& saved = manifest.run;
  const auto change = [](int64_t was, int64_t is) {
    return std::to_string(was) + " to " + std::to_string(is);
  };
  if (saved.threads_per_rank != joined_.threads) {
    notes_.push_back("threads per rank go from " + change(saved.threads_per_rank, joined_.threads) +
                     ": kernels may add in another order, so results agree within rounding, not "
                     "bit by bit");
  }
  if (saved.micro_batch_size != joined_.experiment.batch.micro_batch_size) {
    notes_.push_back("micro_batch_size goes from " +
                     change(saved.micro_batch_size, joined_.experiment.batch.micro_batch_size) +
                     ": results agree within rounding, not bit by bit");
  }
  for (const Kind kind : kKinds) {
    const auto found = manifest.plugins.find(std::string(kind_name(kind)));
    const PluginRecord* record = joined_.host.find(kind, joined_.experiment.plugin(kind).name);
    const bool same_plugin = before.plugin(kind).name == joined_.experiment.plugin(kind).name;
    if (found == manifest.plugins.end() || record == nullptr || !same_plugin) continue;
    if (found->second.version == record->version) continue;
    notes_.push_back(record->id() + " is version " + record->version + ", and was " +
                     found->second.version);
  }
}

}  // namespace zerolab
