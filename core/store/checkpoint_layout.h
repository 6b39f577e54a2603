#pragma once
// Where each byte of a checkpoint file goes: HDF5's structures, and the places of all chunks. Made
// by HDF5 without a disk, and without a look at the tensors' values.
//
// Ranks: local.
// Errors: StoreError that names the file and the tensor.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "store/checkpoint_file.h"
#include "store/hdf5_layout.h"

namespace zerolab {

/// A chunk: values, then zeros, then the checksum of both.
struct LaidChunk {
  int64_t begin = 0;  ///< bytes from the file's beginning
  const char* values = nullptr;
  int64_t values_bytes = 0, padding_bytes = 0;
};

struct CheckpointLayout {
  Hdf5Layout structures;
  std::vector<LaidChunk> chunks;  ///< as they follow in the file
  SealedFile sealed;              ///< but for its checksum
};

CheckpointLayout lay_out_checkpoint(const std::filesystem::path& path, const FileLabel& label,
                                    const std::vector<PieceData>& pieces,
                                    const std::vector<LocalData>& local);

/// The values of a chunk, which stay where they are until the next call. May throw an Error.
using ChunkValues = std::function<const char*(const LaidChunk&)>;

/// Writes, syncs, closes and reads back `path`, which must not exist; no folder is synced. Chunks'
/// values are asked for in the order of the file, each once. Errors: StoreError, or what `values`
/// throws; then the file is gone.
SealedFile write_laid_out(FileLayer& files, const std::filesystem::path& path,
                          CheckpointLayout layout, const ChunkValues& values);

/// `name` as the name of an HDF5 object: bytes that cannot stand in one become %XX.
std::string object_name(const std::string& name);

}  // namespace zerolab
