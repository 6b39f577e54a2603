#pragma once
// An HDF5 file that HDF5 lays out and others write: a virtual file driver that keeps what HDF5
// writes in memory, and only notes where blocks of values are to go.
//
// HDF5 1.10 crashes or stays silent when a disk fills up, holds one lock for all threads while it
// waits for the disk, and wants values beside their checksum. So it never sees a disk here: it
// closes its file first, and what comes of that is then written from front to end.
//
// Ranks: local. One thread at a time fills a given layout.
// Source: HDF5 1.10, "HDF5 Virtual File Layer"; H5FDpublic.h (since 1.14 H5FDdevelop.h).

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <vector>

#include "store/hdf5_handle.h"

namespace zerolab {

/// The bytes of a file but for its blocks of values. Its size in memory is that of HDF5's own
/// structures.
class Hdf5Layout {
 public:
  /// The next write of exactly `size` bytes at `block` is a block of values: it is not read, which
  /// it thus need not be for all of its size.
  void expect_block(const void* block, int64_t size);
  /// Where HDF5 put that block, in bytes from the file's beginning; -1 if it has not.
  int64_t block_place() const { return block_place_; }

  int64_t bytes() const { return end_; }  ///< of the whole file, once it is closed
  bool out_of_memory() const { return out_of_memory_; }
  /// Bytes [begin, begin + size): zero where HDF5 has written nothing, or a block of values.
  void read(int64_t begin, void* out, size_t size) const;

  // What the driver calls.
  void write(int64_t begin, const void* data, size_t size) noexcept;
  void set_end(int64_t end) { end_ = end; }

 private:
  void copy(int64_t begin, const char* data, size_t size);
  std::map<int64_t, std::vector<char>> pages_;  // by number
  const void* block_ = nullptr;
  int64_t block_bytes_ = 0, block_place_ = -1, end_ = 0;
  bool out_of_memory_ = false;
};

/// A new HDF5 file in `layout`, which outlives it. `file` is what errors name; nothing of that name
/// is made or looked for. Errors: StoreError.
Hdf5Handle create_hdf5_layout(const std::filesystem::path& file, Hdf5Layout& layout);

}  // namespace zerolab
