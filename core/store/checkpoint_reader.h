#pragma once
// Reads a complete checkpoint: whole tensors, put together from the ranks' files, and what is one
// rank's own.
//
// Ranks: local. From any thread.
// Errors: StoreError that names the file, and the tensor if there is one.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "store/checkpoint_file.h"
#include "store/manifest.h"

namespace zerolab {

/// Whole tensors of one complete checkpoint, put together from the ranks' files.
class CheckpointReader {
 public:
  /// `checkpoint`: its folder. Errors: StoreError if the manifest is missing or damaged, or the
  /// files leave elements of a tensor out.
  explicit CheckpointReader(const std::filesystem::path& checkpoint);

  const CheckpointManifest& manifest() const { return manifest_; }
  /// Whole ones (offset 0, all elements), sorted by parameter, then state.
  const std::vector<PieceInfo>& tensors() const { return tensors_; }
  /// Null if there is none.
  const PieceInfo* find(const std::string& parameter, const std::string& state) const;

  /// Damage of one file, by its number in the manifest: as find_damage(); texts come after the
  /// ranks' files.
  size_t num_files() const;
  std::string find_damage(size_t file) const;

  /// Elements [first, first + count) of a whole tensor. Errors: StoreError that names file and
  /// tensor if a checksum is wrong.
  void read(const PieceInfo& tensor, int64_t first, int64_t count, void* out) const;
  /// A rank's local state by name; null if there is none.
  const SealedLocal* find_local(int rank, const std::string& name) const;
  void read_local(int rank, const SealedLocal& local, void* out) const;

 private:
  /// Elements [begin, end) of a whole tensor, and the piece that they are read from.
  struct Place {
    int64_t begin = 0, end = 0;
    size_t file = 0, piece = 0;
  };
  void find_tensors();
  std::vector<Place> cover(const PieceInfo& tensor, std::vector<Place> pieces) const;

  std::filesystem::path folder_;
  CheckpointManifest manifest_;
  std::vector<PieceInfo> tensors_;
  std::vector<std::vector<Place>>
      places_;  // of each tensor: all of its elements, in order, each once
};

}  // namespace zerolab
