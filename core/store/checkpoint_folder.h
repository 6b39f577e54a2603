#pragma once
// RUN/checkpoints: complete checkpoints under their final names, and the one being written under a
// partial name. FORMAT.md describes it.
//
// Order of a save: one rank begin()s; every rank writes its file into partial(step); when all have,
// one rank publish()es, or abandon()s. A folder of a final name with a manifest is complete; nothing
// else counts. Whatever moment the process or the machine dies at, what was complete stays so.
// Ranks: local; one rank alone calls what writes.
// Errors: StoreError that names the path, with what to do.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "store/file_layer.h"
#include "store/manifest.h"

namespace zerolab {

/// Which checkpoints stay when a new one is there; the newest always does.
struct Retention {
  int64_t keep_last = 2;
  int64_t keep_every = 0;  ///< steps; 0: none for that
  bool keep_best = false;  ///< the lowest val_loss
};

class CheckpointFolder {
 public:
  /// `run`: the run's folder; nothing is made yet.
  explicit CheckpointFolder(const std::filesystem::path& run, FileLayer& files = real_files());

  std::filesystem::path path(int64_t step) const;     ///< ".../checkpoints/step-000000500"
  std::filesystem::path partial(int64_t step) const;  ///< the same with ".partial"
  static std::string rank_file_name(int rank);        ///< "rank-0003.h5"

  /// Makes an empty partial folder; what a killed process left under that name goes.
  void begin(int64_t step);
  /// Adds the texts ("config.resolved.toml", ...) and the manifest, which gets their names and
  /// checksums, syncs everything, and renames. A complete checkpoint of that step that was there
  /// is replaced. Errors: then the partial folder is gone, and the checkpoints before are intact.
  void publish(Manifest manifest, const std::vector<std::pair<std::string, std::string>>& texts);
  void abandon(int64_t step);
  /// Removes complete checkpoints that no rule keeps, and leftovers of pruning and of saves of
  /// steps up to the newest; other names are not touched. Errors: StoreError if one cannot be
  /// removed; all that can be are.
  void prune(const Retention& retention);
  /// Removes checkpoints of later steps: a run that went back has other ones from there on.
  void remove_after(int64_t step);

  /// Steps of complete checkpoints, ascending; a folder that is not there has none.
  std::vector<int64_t> steps() const;
  /// Errors: StoreError if it is missing or damaged.
  Manifest manifest(int64_t step) const;
  /// Reads a text of a checkpoint. Errors: StoreError if it is missing or not as it was saved.
  std::string text(int64_t step, const std::string& name) const;

 private:
  std::filesystem::path folder_;
  FileLayer& files_;
};

/// Whole tensors of one complete checkpoint, put together from the ranks' files.
class CheckpointReader {
 public:
  /// `checkpoint`: its folder. Errors: StoreError if the manifest is missing or damaged, or the
  /// files leave elements of a tensor out.
  explicit CheckpointReader(const std::filesystem::path& checkpoint);

  const Manifest& manifest() const { return manifest_; }
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
  struct Place {
    size_t file = 0, piece = 0;
  };
  std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<PieceInfo> tensors_;
  std::vector<std::vector<Place>> places_;  // of each tensor, by offset
};

}  // namespace zerolab
