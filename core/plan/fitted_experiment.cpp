#include "plan/fitted_experiment.h"

#include <algorithm>
#include <string>
#include <vector>

#include "zerolab/error.h"

namespace zerolab {
namespace {

constexpr int kMostTried = 1024;

/// Downwards from the wanted number, then upwards.
std::vector<int> numbers_to_try(int num_ranks) {
  std::vector<int> numbers;
  for (int n = std::min(num_ranks - 1, kMostTried); n >= 1; --n) numbers.push_back(n);
  for (int n = num_ranks + 1; n <= kMostTried; ++n) numbers.push_back(n);
  return numbers;
}

}  // namespace

FittedExperiment resolve_fitting(const ExperimentFile& file, PluginCatalogue& catalogue,
                                 int num_ranks) {
  std::string reason;
  try {
    return {file.resolve(catalogue, num_ranks), num_ranks};
  } catch (const ConfigError& error) {
    reason = error.what();
  }
  for (int n : numbers_to_try(num_ranks)) {
    try {
      return {file.resolve(catalogue, n), n};
    } catch (const ConfigError& error) {
      // Word for word the same on another number of ranks: the mistake lies elsewhere.
      if (reason == error.what()) throw;
    }
  }
  throw ConfigError(reason);
}

}  // namespace zerolab
