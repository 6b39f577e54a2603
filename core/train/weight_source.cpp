#include "train/weight_source.h"

#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "zerolab/error.h"

#include "store/checkpoint_folder.h"
#include "store/checkpoint_reader.h"
#include "train/resumption.h"

namespace zerolab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSafetensors = ".safetensors", kIndex = ".safetensors.index.json";

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_run(const fs::path& folder) {
  return is_file(folder / "config.resolved.toml") && !is_file(folder / kManifestName);
}

/// The first of a run's checkpoints that is complete and can be opened.
fs::path checkpoint_of(const CheckpointName& name, const std::string& key) {
  const CheckpointFolder folder(name.run);
  std::optional<StoreError> first;
  for (const int64_t step : candidate_steps(name)) {
    try {
      const CheckpointReader reader(folder.path(step));
      return folder.path(step);
    } catch (const StoreError& error) {
      if (!first) first = error;
    }
  }
  if (first) throw *first;
  throw ConfigError(key + name.run.string() +
                    ": has no complete checkpoint to take weights from; a run makes them with "
                    "checkpoint.every, and at its end.");
}

fs::path find_in_folder(const fs::path& folder, const std::string& key) {
  if (is_file(folder / kManifestName)) return whole_path(folder);
  for (const std::string& name : {std::string(kWeightsName), "model" + std::string(kIndex)}) {
    if (is_file(folder / name)) return whole_path(folder / name);
  }
  throw ConfigError(
      key + folder.string() +
      ": is no run's or checkpoint's folder, and holds no model.safetensors; name one "
      "that does.");
}

fs::path check_file(const fs::path& file, const std::string& key) {
  const std::string name = file.filename().string();
  const bool known = name.ends_with(".h5") || name.ends_with(".hdf5") ||
                     name.ends_with(kSafetensors) || name.ends_with(kIndex);
  if (known) return whole_path(file);
  throw ConfigError(
      key + file.string() +
      ": weights are read from .safetensors files, their .safetensors.index.json, and "
      "the .h5 files of `zerolab checkpoint consolidate`; turn it into one of these.");
}

}  // namespace

fs::path find_weights(const std::string& named, const std::string& key) {
  std::error_code error;
  const fs::path path = named;
  if (is_file(path)) return check_file(path, key);
  if (fs::is_directory(path, error)) {
    return is_run(path) ? checkpoint_of(parse_checkpoint_name(named), key)
                        : find_in_folder(path, key);
  }
  const size_t at = named.rfind('@');
  if (at != std::string::npos && is_run(named.substr(0, at)))
    return checkpoint_of(parse_checkpoint_name(named), key);
  throw ConfigError(
      key + named +
      ": is not there; name a run's folder (or RUN@500, RUN@best), a checkpoint's, or "
      "a file of weights (.safetensors, .h5).");
}

TensorSource open_weights(const fs::path& found) {
  const std::string name = found.filename().string();
  if (name.ends_with(kIndex)) return open_safetensors_index(found);
  if (name.ends_with(kSafetensors)) return open_safetensors(found);
  return is_file(found) ? open_whole_file(found) : open_checkpoint_tensors(found);
}

}  // namespace zerolab
