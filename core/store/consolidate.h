#pragma once
// One file with the whole tensors of a checkpoint, put together from the ranks' files.
//
// HDF5: a checkpoint file as a single rank would have written it, with one piece per tensor, all
// states, and no rank's local state. Safetensors: parameters under their own names, and, if asked
// for, states as "<parameter>.<state>". FORMAT.md describes both.
// No more than kChunkBytes of values are in memory at a time.
// Ranks: local.
// Errors: StoreError that names the file, and the tensor if there is one; then nothing is left of
// the new file, and what was there before is untouched. Checksums are compared while reading.

#include <cstdint>
#include <filesystem>
#include <functional>

#include "store/checkpoint_reader.h"
#include "store/file_layer.h"

namespace zerolab {

enum class WholeFormat { kHdf5, kSafetensors };

struct ConsolidateRequest {
  std::filesystem::path file;
  WholeFormat format = WholeFormat::kHdf5;
  bool states = true;      ///< optimizer states too; HDF5 always has them
  bool overwrite = false;  ///< else a file that is there is a StoreError
};

/// Bytes of values that are done, and of all.
using ByteProgress = std::function<void(int64_t done, int64_t total)>;

struct ConsolidatedFile {
  int64_t tensors = 0, bytes = 0;
};

/// Writes `request.file` under a partial name, syncs and renames it.
ConsolidatedFile consolidate(const CheckpointReader& checkpoint, const ConsolidateRequest& request,
                             const ByteProgress& progress, FileLayer& files = real_files());

/// The key of a safetensors file's metadata that lists the states which it holds, with commas.
inline constexpr const char* kStatesKey = "states";

}  // namespace zerolab
