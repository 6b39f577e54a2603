#pragma once
// manifest.json of a checkpoint: what was saved, where it is, and how to notice that it is not
// there as it was. FORMAT.md describes it.
//
// The text ends with a checksum of all that stands before it, so that a damaged manifest is no
// manifest.
// Ranks: local.
// Errors: StoreError that names the file.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "store/checkpoint_file.h"

namespace zerolab {

/// Where training stands: with the experiment and the tensors, all that going on needs.
struct TrainingPoint {
  int64_t step = 0;             ///< finished optimizer steps
  int64_t applied_updates = 0;  ///< of these, with an update
  int64_t skipped_steps = 0;
  int64_t tokens = 0;       ///< counted targets so far, all ranks
  int64_t next_sample = 0;  ///< global number of the first sample of the next step
  uint64_t seed = 0;        ///< of every random generator, with the step and what it is for
  double val_loss = std::numeric_limits<double>::quiet_NaN();  ///< at this step, if evaluated
  std::map<std::string, double> precision;                     ///< the precision plugin's own
  std::vector<double> recent_losses;                           ///< the guard's window, oldest first
  int64_t skips_in_a_row = 0;  ///< skipped steps since the last accepted one
  int64_t rollbacks = 0;       ///< of the run so far
};

/// How the run was cut when it saved.
struct SavedRun {
  std::string name;
  int ranks = 1;
  int threads_per_rank = 1;
  int64_t total_batch_size = 0, micro_batch_size = 0, gradient_accumulation_steps = 0;
  std::string data_xxh128{};  ///< of samples of its data; empty in checkpoints that have none
};

struct SavedPlugin {
  std::string id, version;
  std::string xxh128;  ///< of its library
};

/// A plain file of the checkpoint (the configuration, the environment).
struct SavedText {
  std::string name;
  int64_t bytes = 0;
  std::string xxh128;
};

struct CheckpointManifest {
  TrainingPoint point;
  SavedRun run;
  std::string created;                         ///< UTC, "2026-11-30T18:51:04Z"
  std::map<std::string, SavedPlugin> plugins;  ///< by kind
  std::vector<SealedFile> files;               ///< by rank
  std::vector<SavedText> texts;
};

/// Of all its files but the manifest itself.
int64_t checkpoint_bytes(const CheckpointManifest& manifest);

std::string write_checkpoint_manifest(const CheckpointManifest& manifest);
/// `file` is what errors name. Errors: StoreError if the checksum is wrong, a field is missing or
/// of another type, or the format is newer.
CheckpointManifest parse_checkpoint_manifest(const std::string& text,
                                             const std::filesystem::path& file);

/// Reads `checkpoint`/manifest.json. Errors: StoreError too if it is missing.
CheckpointManifest read_checkpoint_manifest(const std::filesystem::path& checkpoint);
inline constexpr const char* kManifestName = "manifest.json";

/// What a manifest says about a text.
SavedText saved_text(const std::string& name, const std::string& text);
/// Reads one of the texts of a checkpoint. Errors: StoreError if it is missing or not as it was
/// saved.
std::string read_saved_text(const std::filesystem::path& checkpoint, const SavedText& text);

/// One rank's sealed file as text, for its way to the rank that writes the manifest.
std::string write_sealed_file(const SealedFile& sealed);
SealedFile parse_sealed_file(const std::string& text);

}  // namespace zerolab
