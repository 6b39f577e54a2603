#pragma once
// Files of the safetensors format: whole tensors, one after the other, behind a header of JSON.
//
// The bytes are: the header's length (8 bytes, little-endian), the header, the tensors' values.
// Each begins at a multiple of its elements' size, so that a reader may map the file.
// Ranks: local.
// Errors: StoreError that names the file, and the tensor if there is one.
// Source: https://github.com/huggingface/safetensors, README, "Format".

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "store/checkpoint_file.h"

namespace zerolab {

struct SafeTensor {
  std::string name;
  TensorDtype dtype = TensorDtype::kFloat32;
  std::vector<int64_t> shape;
  int64_t begin = 0, bytes = 0;  ///< of its values, behind the header
};

struct SafetensorsHeader {
  std::vector<SafeTensor> tensors;  ///< as their values follow each other
  std::map<std::string, std::string> metadata;
  int64_t bytes = 0;  ///< of the length and the header, before the values
};

/// Elements [first, first + count) of a tensor; may throw an Error.
using ReadSafeTensor =
    std::function<void(const SafeTensor& tensor, int64_t first, int64_t count, void* out)>;

/// Writes, syncs and closes `path`, which must not exist; no folder is synced. `begin` and `bytes`
/// of the tensors are worked out here, and so is their order. Holds kChunkBytes of values at a
/// time. Returns the file's size. Errors: also what `read` throws; then the file is gone.
int64_t write_safetensors(FileLayer& files, const std::filesystem::path& path,
                          std::vector<SafeTensor> tensors,
                          const std::map<std::string, std::string>& metadata,
                          const ReadSafeTensor& read);

/// Truth values (BOOL, a byte each) read as uint8. Errors: StoreError if the file is none, is cut
/// off, or holds a type that this version lacks.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);
void read_safetensors(const std::filesystem::path& path, const SafetensorsHeader& header,
                      const SafeTensor& tensor, int64_t first, int64_t count, void* out);

}  // namespace zerolab
