#pragma once
// An experiment's texts, read and merged, before anything in them is checked.

#include <filesystem>
#include <string>
#include <vector>

#include "experiment/settings.h"

namespace zerolab {

struct ExperimentTree {
  std::filesystem::path file;   ///< of the experiment, absolute
  std::vector<Source> sources;  ///< the experiment first, then its bases, then the overrides
  SettingTable root;
};

/// Reads the experiment and its bases, then lays the overrides over them. Errors: ConfigError with
/// all that is wrong.
ExperimentTree read_experiment(const std::filesystem::path& file,
                               const std::vector<std::string>& overrides);

}  // namespace zerolab
