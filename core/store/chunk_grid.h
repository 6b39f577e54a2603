#pragma once
// How a dataset of a checkpoint is cut into chunks: into as few as hold kChunkBytes of values
// each, all of one length, so that the last one is padded with a few zeros only. (HDF5 stores
// whole chunks: a last chunk of what is left over would be padded to the others' length.)

#include <cstdint>

#include "store/checkpoint_file.h"

namespace zerolab {

struct ChunkGrid {
  int64_t element_bytes = 1, length = 0;     ///< of the dataset
  int64_t num_chunks = 0, chunk_length = 0;  ///< elements, padding included

  /// `elements`: at least 0.
  ChunkGrid(TensorDtype dtype, int64_t elements)
      : element_bytes(dtype_size(dtype)), length(elements) {
    constexpr int64_t kWhole = 16;  // elements, so that chunks begin where vectors do
    const int64_t most = kChunkBytes / element_bytes;
    num_chunks = length / most + (length % most != 0);
    chunk_length = length;
    if (num_chunks > 1) {
      const int64_t each = length / num_chunks + (length % num_chunks != 0);
      chunk_length = (each + kWhole - 1) / kWhole * kWhole;
      num_chunks = length / chunk_length + (length % chunk_length != 0);
    }
  }
  int64_t first(int64_t chunk) const { return chunk * chunk_length; }
  /// Elements of a chunk without padding.
  int64_t count(int64_t chunk) const {
    const int64_t left = length - first(chunk);
    return left < chunk_length ? left : chunk_length;
  }
  int64_t chunk_bytes() const { return chunk_length * element_bytes; }  ///< without checksum
};

}  // namespace zerolab
