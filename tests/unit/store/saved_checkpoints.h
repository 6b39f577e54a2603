#pragma once
// Checkpoints whose files hold a line each in place of tensors: their folder does not look inside.

#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>

#include "catch.h"
#include "scratch.h"
#include "store/checkpoint_folder.h"
#include "store/xxh128.h"

namespace zerolab {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

inline std::string contents(int64_t step, const std::string& version) {
  return "tensors of step " + std::to_string(step) + ", " + version;
}

inline CheckpointManifest prepare(CheckpointFolder& folder, int64_t step,
                                  const std::string& version) {
  folder.begin(step);
  const std::string text = contents(step, version);
  const std::string name = CheckpointFolder::rank_file_name(0);
  std::ofstream(folder.partial(step) / name) << text;
  CheckpointManifest manifest;
  manifest.point.step = step;
  manifest.run.name = version;
  manifest.files.push_back({name, static_cast<int64_t>(text.size()), xxh128(text), {}, {}});
  return manifest;
}

inline void save(CheckpointFolder& folder, int64_t step, const std::string& version = "first",
                 double val_loss = kNone) {
  CheckpointManifest manifest = prepare(folder, step, version);
  manifest.point.val_loss = val_loss;
  folder.publish(manifest, {{"config.resolved.toml", "version = \"" + version + "\"\n"}});
}

inline std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().filename());
  return names;
}

/// The version of a complete checkpoint, all of whose files are as they were saved.
inline std::string whole_version(const CheckpointFolder& folder, int64_t step) {
  const CheckpointManifest manifest = folder.manifest(step);
  const std::string version = manifest.run.name;
  REQUIRE(manifest.files.size() == 1);
  REQUIRE(read_file(folder.path(step) / manifest.files[0].name) == contents(step, version));
  REQUIRE(folder.text(step, "config.resolved.toml") == "version = \"" + version + "\"\n");
  return version;
}

}  // namespace zerolab
