#pragma once
// An experiment for a number of ranks that its batch sizes may not fit.

#include "experiment/experiment.h"

namespace zerolab {

struct FittedExperiment {
  Experiment experiment;
  int ranks = 1;  ///< that it was resolved for: the wanted number, or one that fits
};

/// Resolves a file for `num_ranks`; if its batch sizes do not fit that many, for the next smaller
/// number that they fit, else for the next larger one up to 1024: sizes per rank are then those of
/// that number. Errors: ConfigError and PluginError of ExperimentFile::resolve() where the number
/// of ranks is not what is wrong.
FittedExperiment resolve_fitting(const ExperimentFile& file, PluginCatalogue& catalogue,
                                 int num_ranks);

}  // namespace zerolab
