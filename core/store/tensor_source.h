#pragma once
// Named tensors to read from, whatever file they are in: a checkpoint, or one file of whole
// tensors.
//
// Ranks: local.
// Errors: StoreError that names the file, and the tensor if there is one.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/checkpoint_file.h"

namespace zerolab {

/// A number that belongs to where training stands.
struct Counter {
  std::string text;            ///< with all its digits
  std::optional<double> real;  ///< if it is no whole number
  bool is_state = true;        ///< false: it tells about the state, and is no part of it
};

struct SourceTensor {
  PieceInfo info;  ///< a whole one; a rank's own has "local to rank 3" for its state
  std::function<void(int64_t first, int64_t count, void* out)> read;
};

struct TensorSource {
  std::vector<SourceTensor> tensors;        ///< sorted by parameter, then state
  std::map<std::string, Counter> counters;  ///< by name; none in a file of whole tensors
};

/// All of a checkpoint: its folder.
TensorSource open_checkpoint_tensors(const std::filesystem::path& checkpoint);
/// A consolidated HDF5 file.
TensorSource open_whole_file(const std::filesystem::path& file);
/// A file of the safetensors format. States are told from parameters by its metadata, if it is of
/// ours.
TensorSource open_safetensors(const std::filesystem::path& file);
/// Several such files in one folder, as an index (`NAME.safetensors.index.json`) lists what is in
/// which. Errors: also if a file has no tensor that the index says is there.
TensorSource open_safetensors_index(const std::filesystem::path& index);

}  // namespace zerolab
