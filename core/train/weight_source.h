#pragma once
// Where weights are read from: what `init_from` may name.
// Ranks: local.

#include <filesystem>
#include <string>

#include "store/tensor_source.h"

namespace zerolab {

/// Turns what a user named into the checkpoint's folder or the file that is read: a run's folder
/// (its newest checkpoint that can be read), RUN@500, RUN@best, a checkpoint's folder, a
/// consolidated HDF5 file, a safetensors file or an index of several, or a folder that holds one of
/// these as model.safetensors[.index.json]. `key` begins the errors. Errors: ConfigError that says
/// what can be named; StoreError if no checkpoint of the run can be read.
std::filesystem::path find_weights(const std::string& named, const std::string& key);

/// Opens what find_weights() gave. Errors: StoreError.
TensorSource open_weights(const std::filesystem::path& found);

inline constexpr const char* kWeightsName = "model.safetensors";

}  // namespace zerolab
