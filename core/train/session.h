#pragma once
// One rank's run of an experiment, from the file to the summary.
// Ranks: collective.

#include <filesystem>

#include "train/rank_session.h"

namespace zerolab {

struct RunRequest {
  ExperimentRequest source;
  std::filesystem::path run_dir;  ///< empty: runs/<name>-<n>
  bool json = false;  ///< the summary as JSON on standard output, progress on standard error
};

/// [local] Everything that can be checked before a process is started: the file, its options, its
/// plugins. Errors: ConfigError, PluginError.
void check_before_launch(const RunRequest& request, int num_ranks);

/// [collective] Runs this process's rank; rank 0 prints and writes. Returns the exit code of a
/// failure that the launcher prints (after telling it and the other ranks why); throws one that the
/// caller has to print.
int run_rank(const RunRequest& request, const RankEnvironment& environment);

}  // namespace zerolab
