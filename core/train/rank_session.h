#pragma once
// How a process becomes a rank of a run and stops being one: it reads the experiment, finds the
// plugins, meets the other ranks, and tells them and the user if it fails.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "distributed/world.h"
#include "experiment/experiment.h"
#include "host/plugin_host.h"
#include "train/trainer.h"

namespace zerolab {

struct ExperimentRequest {
  std::filesystem::path experiment;
  std::vector<std::string> overrides;
  PluginSearch search;  ///< without the experiment's own entries
};

/// [setup] The search path with the experiment's own entries.
PluginSearch search_for(const ExperimentRequest& request, const ExperimentFile& file);

/// [setup] The checked experiment. What the file may say but this version cannot do is refused,
/// never passed over. Errors: ConfigError, PluginError.
Experiment resolve_for_training(const ExperimentFile& file, PluginHost& host, int num_ranks);

/// [setup] New plugins, as the experiment chooses them.
TrainingPlugins make_plugins(PluginHost& host, const Experiment& experiment);

/// What a rank has once all have met. References outlive the body.
struct JoinedRank {
  World& world;
  PluginHost& host;
  const Experiment& experiment;
  Communicator& ranks;
  int threads = 1;  ///< of this rank, already set
};

/// How a rank's body ended, if nothing failed.
struct RankOutcome {
  int exit_code = 0;  ///< of the process: 0, or 75 for a run that was stopped
  /// Why the whole failed although no rank did, as a sentence that every rank knows and rank 0
  /// tells; empty if it did not.
  std::string problem;
};

/// [collective] What a rank does.
using RankBody = std::function<RankOutcome(JoinedRank& joined)>;

/// [collective] Runs `body` as this process's rank. Returns the exit code of a failure that the
/// launcher prints (after telling it and the other ranks why); throws one that the caller has to
/// print.
int run_as_rank(const ExperimentRequest& request, const RankEnvironment& environment,
                const RankBody& body);

}  // namespace zerolab
