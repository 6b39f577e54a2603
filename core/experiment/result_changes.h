#pragma once
// What two experiments differ in that changes results: what a run may not change when it goes on.

#include <string>
#include <vector>

#include "experiment/experiment.h"

namespace zerolab {

struct ExperimentChanges {
  /// Each as a phrase: "scheduler.lr is 0.001, was 0.0003".
  std::vector<std::string> results;
  /// Files and folders that have moved; what is in them is the user's word.
  std::vector<std::string> paths;
};

/// Options say themselves whether they keep results. Another sharding strategy keeps them by its
/// promise, and so does another cut of the same total batch into micro-batches and ranks; a plugin
/// of any other kind does not. Errors: PluginError for a plugin that is not installed.
ExperimentChanges compare_experiments(const Experiment& before, const Experiment& after,
                                      PluginCatalogue& catalogue);

}  // namespace zerolab
