#pragma once
// One rank's file of a checkpoint: an HDF5 file of pieces of whole tensors, written once and
// sealed. FORMAT.md describes it.
//
// A piece is a dataset of chunks, each followed by its Fletcher-32 checksum as HDF5 has it, so
// h5py and h5dump notice damage by themselves. Here files are read by the places of their chunks,
// which the manifest lists, and not through HDF5: that may crash on a damaged file.
//
// Ranks: local. From any thread; only one at a time writes a given file.
// Errors: StoreError that names the file, and the tensor if there is one.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "store/file_layer.h"

namespace zerolab {

enum class TensorDtype { kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kUInt8 };
/// "float32", ...
std::string_view dtype_name(TensorDtype dtype);
/// Errors: StoreError for another word.
TensorDtype dtype_from_name(std::string_view name);
int64_t dtype_size(TensorDtype dtype);  ///< bytes

/// Part of a whole tensor: elements [offset, offset + length) of it, flattened.
struct PieceInfo {
  std::string parameter;
  std::string state;           ///< "parameter", or an optimizer state's name
  std::vector<int64_t> shape;  ///< of the whole tensor
  TensorDtype dtype = TensorDtype::kFloat32;
  int64_t offset = 0, length = 0;
};
/// The state of a parameter's own value.
inline constexpr const char* kParameterState = "parameter";
/// "'head.weight' (exp_avg)", for messages.
std::string tensor_name(const std::string& parameter, const std::string& state);
inline std::string tensor_name(const PieceInfo& info) {
  return tensor_name(info.parameter, info.state);
}
/// A piece in memory, which stays as it is while it is written.
struct PieceData {
  PieceInfo info;
  const void* data = nullptr;
};

/// State that belongs to one rank alone.
struct LocalInfo {
  std::string name;
  TensorDtype dtype = TensorDtype::kFloat32;
  int64_t length = 0;
};
struct LocalData {
  LocalInfo info;
  const void* data = nullptr;
};

/// Where a dataset's chunks begin in the file, in bytes. All have one length (chunk_grid.h), for
/// which the last one is padded with zeros; the checksum follows.
struct ChunkPlaces {
  std::vector<int64_t> begin;
};
inline constexpr int64_t kChunkBytes = 8 << 20;  ///< of values in a chunk, at most

struct SealedPiece {
  PieceInfo info;
  ChunkPlaces chunks;
};
struct SealedLocal {
  LocalInfo info;
  ChunkPlaces chunks;
};
/// A file as it was written: what the manifest says about it.
struct SealedFile {
  std::string name;  ///< without folder
  int64_t bytes = 0;
  std::string xxh128;  ///< of all bytes: XXH3, 128 bits, 32 hex digits as `xxhsum -H2` prints them
  std::vector<SealedPiece> pieces;
  std::vector<SealedLocal> local;
};

/// What a file holds besides tensors, as attributes of its root.
struct FileLabel {
  int64_t step = 0;
  int rank = 0, ranks = 1;
};

/// Writes, syncs, closes and reads back `path`, which must not exist; no folder is synced. Uses no
/// memory of the tensors' size. Errors: StoreError (disk full, ...); then the file is gone.
SealedFile write_checkpoint_file(FileLayer& files, const std::filesystem::path& path,
                                 const FileLabel& label, const std::vector<PieceData>& pieces,
                                 const std::vector<LocalData>& local);

/// Empty if `folder / sealed.name` is the file that was sealed, byte for byte; else what is wrong
/// with it as a sentence that names the file, and the first tensor whose checksum is wrong if there
/// is one. Never throws for damage; uses neither HDF5 nor memory of the file's size.
std::string find_damage(const std::filesystem::path& folder, const SealedFile& sealed);

/// Elements [first, first + count) of a dataset into `out`, checksums compared. `first` counts
/// inside the dataset.
void read_elements(const std::filesystem::path& file, const PieceInfo& info,
                   const ChunkPlaces& chunks, int64_t first, int64_t count, void* out);
void read_elements(const std::filesystem::path& file, const LocalInfo& info,
                   const ChunkPlaces& chunks, int64_t first, int64_t count, void* out);

}  // namespace zerolab
