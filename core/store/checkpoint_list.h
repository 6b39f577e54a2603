#pragma once
// All that a run's folder `checkpoints` holds, whole or not.
//
// Ranks: local.
// Errors: StoreError if the folder cannot be read.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace zerolab {

struct ListedCheckpoint {
  std::string name;   ///< of its folder, "step-000000500"
  int64_t step = -1;  ///< -1: unknown, where it is not complete
  bool complete = false;
  std::string problem;  ///< why it is not complete
  std::string created;  ///< UTC
  double val_loss = std::numeric_limits<double>::quiet_NaN();
  int64_t bytes = 0;  ///< of the files that are there
};

/// Sorted by name. Only manifests are read: complete is what has a manifest that is undamaged and
/// is of this step.
std::vector<ListedCheckpoint> list_checkpoints(const std::filesystem::path& run);

}  // namespace zerolab
