#pragma once
// One rank's run of an experiment, from the file to the summary. Ranks: collective.

#include <filesystem>
#include <string>
#include <vector>

#include "host/plugin_host.h"

namespace zerolab {

struct RunRequest {
  std::filesystem::path experiment;
  std::vector<std::string> overrides;
  PluginSearch search;
  std::filesystem::path run_dir;  ///< empty: runs/<name>-<n>
  bool json = false;  ///< the summary as JSON on standard output, progress on standard error
};

/// Checks the experiment for `num_ranks` without starting anything. Errors: ConfigError,
/// PluginError.
Experiment load_experiment(const RunRequest& request, PluginHost& host, int num_ranks);

/// Searches plugins as a request says, with the experiment's own paths.
PluginSearch plugin_search(const RunRequest& request);

/// Runs this process's rank; rank 0 prints and writes. Throws after telling the other ranks why.
void run_rank(const RunRequest& request);

}  // namespace zerolab
