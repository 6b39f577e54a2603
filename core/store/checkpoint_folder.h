#pragma once
// RUN/checkpoints: complete checkpoints under their final names, and the one being written under a
// partial name. FORMAT.md describes it.
//
// Order of a save: one rank begin()s; every rank writes its file into partial(step); when all have,
// one rank publish()es, or abandon()s. A folder of a final name with a manifest is complete;
// nothing else counts. Whatever moment the process or the machine dies at, what was complete stays
// so.
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
  /// Puts back a checkpoint whose replacement was cut short by the end of its process, where the
  /// file system cannot replace at once. The others that write do this too; a run that is taken up
  /// again does it before it asks for steps().
  void recover();
  /// Adds the texts ("config.resolved.toml", ...) and the manifest, which gets their names and
  /// checksums, syncs everything, and renames. A complete checkpoint of that step that was there
  /// is replaced. Errors: then the partial folder is gone, and the checkpoints before are intact.
  void publish(CheckpointManifest manifest,
               const std::vector<std::pair<std::string, std::string>>& texts);
  /// Removes the partial folder. What cannot be removed now goes with a later begin() or prune().
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
  CheckpointManifest manifest(int64_t step) const;
  /// Reads a text of a checkpoint. Errors: StoreError if it is missing or not as it was saved.
  std::string text(int64_t step, const std::string& name) const;

 private:
  enum class Form { kFinal, kPartial, kReplaced };
  struct Entry {
    int64_t step = 0;
    Form form = Form::kFinal;
    bool complete = false;  // has a manifest
    std::filesystem::path path;
  };

  /// What is exactly ours, by step. Errors: StoreError if the folder cannot be read.
  std::vector<Entry> entries() const;
  std::filesystem::path path(int64_t step, Form form) const;
  static std::string name(int64_t step, Form form);
  std::vector<int64_t> kept(const std::vector<int64_t>& steps, const Retention& retention) const;
  void write_new(const std::filesystem::path& file, const std::string& text);
  void move_into_place(int64_t step);
  void replace_in_two_moves(int64_t step);
  void move(const std::filesystem::path& from, const std::filesystem::path& to);
  void remove_all(const std::vector<Entry>& entries);

  std::filesystem::path folder_;
  FileLayer& files_;
};

}  // namespace zerolab
