#pragma once
// One rank's run of an experiment, from the file, or from a checkpoint, to the summary.
// Ranks: collective.

#include <filesystem>
#include <optional>
#include <vector>

#include "train/rank_session.h"
#include "train/resumption.h"

namespace zerolab {

struct RunRequest {
  enum class Start { kNew, kResume, kFork };
  /// Without an experiment: the one that the run to go on from was started with.
  ExperimentRequest source;
  std::filesystem::path run_dir;  ///< of a new run or a fork; empty: runs/<name>-<n>
  bool json = false;  ///< the summary as JSON on standard output, progress on standard error
  Start start = Start::kNew;
  CheckpointName from;     ///< to resume or fork
  double max_seconds = 0;  ///< then it saves and stops; 0: never
};

/// [local] Everything that can be checked before a process is started: the file, its options, its
/// plugins, and that a run that goes on is still the same. Errors: ConfigError, PluginError.
void check_before_launch(const RunRequest& request, int num_ranks);

/// Why a run cannot be forked.
std::string no_checkpoint_to_fork(const std::filesystem::path& run);

/// [local] The newest run of an experiment's name, `runs/<name>-<n>`. Errors: as
/// check_before_launch().
std::optional<std::filesystem::path> newest_run_of(const ExperimentRequest& source, int num_ranks);

/// [local] A run that is finished has nothing to go on with.
bool is_finished(const std::filesystem::path& run);

/// [collective] Runs this process's rank; rank 0 prints and writes. Returns 0, 75 if the run was
/// stopped and can go on, or the exit code of a failure that the launcher prints (after telling it
/// and the other ranks why); throws one that the caller has to print.
int run_rank(const RunRequest& request, const RankEnvironment& environment);

}  // namespace zerolab
