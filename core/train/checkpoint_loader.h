#pragma once
// Brings a checkpoint into a trainer: the first whole one of a run, telling those that are damaged.
// Ranks: collective, except where it says otherwise.
// Errors: StoreError if a checkpoint that was named, or every one, is damaged; ConfigError if it is
// of another model, or of another experiment where that is asked for.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "train/rank_session.h"
#include "train/resumption.h"
#include "train/trainer.h"

namespace zerolab {

/// [local] As a user would write it, from here.
std::string short_path(const std::filesystem::path& path);

/// [local] The experiment that a checkpoint was saved with (step -1: that the run was started
/// with), as it was on the ranks of then.
Experiment experiment_before(const CheckpointName& name, int64_t step, PluginHost& host);

class CheckpointLoader {
 public:
  /// References outlive it. `data`: the data_digest() of this run's.
  CheckpointLoader(JoinedRank& joined, Trainer& trainer, std::string data);

  /// Returns the step that was loaded; -1 if the run has no checkpoint. A fork may differ from what
  /// was saved in all that tensors allow.
  int64_t load(const CheckpointName& name, bool fork);
  /// For a run that goes back in its own folder. False if it has no checkpoint.
  bool load_newest(const std::filesystem::path& own_run);

  /// [local] Rank 0: warns of the damaged ones that load() passed over, and sets those of an own
  /// run aside; another's (an empty path) are left alone. `used`: the step that was loaded instead.
  void tell_damaged(const std::filesystem::path& own_run, int64_t used) const;
  /// [local] What the user should know about where the run begins.
  std::vector<std::string>& notes() { return notes_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  int64_t find_whole(const CheckpointName& name);
  void load_step(const std::filesystem::path& run, int64_t step, const Experiment& before,
                 bool fork);
  void check_data(const std::filesystem::path& run, const SavedRun& saved, bool fork);
  void note_differences(const CheckpointManifest& manifest, const Experiment& before);

  JoinedRank& joined_;
  Trainer& trainer_;
  const std::string data_;
  std::vector<std::string> notes_;
  std::vector<std::pair<int64_t, std::string>> damaged_;  // step, and what is wrong with it
};

}  // namespace zerolab
