#pragma once
// Where a run goes on from: which checkpoint, whether it is whole, whether the experiment is still
// the same, and how the batch is cut for other ranks.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "zerolab/communicator.h"

#include "experiment/experiment.h"
#include "store/manifest.h"

namespace zerolab {

/// RUN, RUN@500 or RUN@best, as users name a checkpoint.
struct CheckpointName {
  std::filesystem::path run;
  int64_t step = -1;  ///< -1: the newest
  bool best = false;  ///< the lowest validation loss
  bool newest() const { return step < 0 && !best; }
};
/// Errors: ConfigError if what follows the last '@' is no step, or the folder is no run's.
CheckpointName parse_checkpoint_name(const std::string& text);

/// [local] Brings a run, or the checkpoint that is named, from a mirror if it is not here. Returns
/// what it did, as a line; empty if nothing was missing. Errors: ConfigError for a remote that is
/// none; StoreError if it cannot be reached or lacks the run.
std::string fetch_missing(const std::string& text, const std::string& remote);

/// [local] Steps of complete checkpoints that suit a name, in the order in which they are tried.
/// Errors: ConfigError if one was named that is not there.
std::vector<int64_t> candidate_steps(const CheckpointName& name);

/// [local] The first of candidate_steps() whose configuration is as it was saved; -1 if there are
/// no checkpoints. Errors: StoreError if none is.
int64_t readable_step(const CheckpointName& name);

/// How the run was cut when it saved, from its newest complete checkpoint with a manifest that can
/// be read; else from what it recorded at its start. [local]
SavedRun saved_run(const CheckpointName& name);

/// [local] Overrides that keep the total batch on `num_ranks` ranks: the same micro-batches if they
/// divide, else smaller ones. What `given` says of the batch stays, another total of a fork too.
/// On the same ranks, too: the run's configuration may be of a later session on others, which broke
/// off before it saved.
/// Errors: ConfigError if the total does not divide.
std::vector<std::string> batch_overrides(const SavedRun& saved, int num_ranks,
                                         const std::vector<std::string>& given);

/// [local] Holds the experiment against that of a checkpoint. Returns what the user should know.
/// Errors: ConfigError that lists what may not change.
std::vector<std::string> check_unchanged(const Experiment& before, const Experiment& after,
                                         PluginCatalogue& catalogue, const std::string& title);

/// [collective] The first of `candidates` (rank 0's list) whose files are whole; ranks share the
/// reading. `damaged` is called on every rank for each that is not, with what is wrong; `alive`
/// before each file. Nothing if none is.
std::optional<int64_t> choose_whole(
    const std::filesystem::path& run, const std::vector<int64_t>& candidates, Communicator& ranks,
    const std::function<void(int64_t step, const std::string& damage)>& damaged,
    const std::function<void()>& alive);

}  // namespace zerolab
