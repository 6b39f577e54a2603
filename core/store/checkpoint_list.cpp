#include "store/checkpoint_list.h"

#include <algorithm>
#include <system_error>

#include "zerolab/error.h"

#include "store/checkpoint_folder.h"
#include "store/folder_removal.h"

namespace zerolab {

namespace {

namespace fs = std::filesystem;

int64_t bytes_in(const fs::path& folder) {
  std::error_code error;
  int64_t bytes = 0;
  for (const fs::path& path : names_in(folder, error)) {
    const auto size = fs::file_size(path, error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

ListedCheckpoint listed_checkpoint(const CheckpointFolder& checkpoints, const fs::path& path) {
  ListedCheckpoint listed;
  listed.name = path.filename().string();
  listed.bytes = bytes_in(path);
  if (listed.name.ends_with(".partial")) listed.problem = "was never finished";
  if (listed.name.ends_with(".replaced")) listed.problem = "was being replaced";
  if (listed.name.ends_with(".damaged")) listed.problem = "was found damaged and set aside";
  if (!listed.problem.empty()) return listed;
  try {
    const CheckpointManifest manifest = read_checkpoint_manifest(path);
    listed.step = manifest.point.step;
    listed.created = manifest.created;
    listed.val_loss = manifest.point.val_loss;
    listed.complete = checkpoints.path(listed.step).filename() == listed.name;
    if (!listed.complete) listed.problem = "is of step " + std::to_string(listed.step);
  } catch (const StoreError& damage) {
    listed.problem = damage.what();
  }
  return listed;
}

}  // namespace

std::vector<ListedCheckpoint> list_checkpoints(const fs::path& run) {
  const fs::path folder = run / "checkpoints";
  std::error_code error;
  const std::vector<fs::path> paths = names_in(folder, error);
  if (error && error != std::errc::no_such_file_or_directory)
    throw StoreError(folder.string() + ": cannot be read: " + error.message() + ".");
  const CheckpointFolder checkpoints(run);
  std::vector<ListedCheckpoint> list;
  for (const fs::path& path : paths) {
    if (!path.filename().string().starts_with("step-") || !is_real_folder(path)) continue;
    list.push_back(listed_checkpoint(checkpoints, path));
  }
  return list;
}

}  // namespace zerolab
