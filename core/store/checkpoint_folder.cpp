#include "store/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <system_error>
#include <tuple>

#include <unistd.h>

#include "zerolab/error.h"

#include "store/folder_removal.h"

namespace zerolab {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const fs::path& path, const std::string& cannot, int error) {
  throw StoreError(path.string() + ": cannot be " + cannot + ": " + errno_text(error) +
                   "; complete checkpoints are as they were, so " + errno_advice(error) + ".");
}

bool is_complete(const fs::path& folder) {
  std::error_code ignored;
  return is_real_folder(folder) &&
         fs::is_regular_file(fs::symlink_status(folder / kManifestName, ignored));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  int close() { return number_ < 0 ? 0 : ::close(std::exchange(number_, -1)); }

 private:
  int number_;
};

/// Every rank's file has to be there, or the checkpoint would be complete in name only.
void check_files(const fs::path& folder, const std::vector<SealedFile>& files) {
  for (const SealedFile& file : files) {
    std::error_code error;
    const auto bytes = fs::file_size(folder / file.name, error);
    if (error) fail(folder / file.name, "published", error.value());
    if (bytes != static_cast<uintmax_t>(file.bytes)) {
      throw StoreError((folder / file.name).string() + ": has " + std::to_string(bytes) +
                       " bytes, but " + std::to_string(file.bytes) +
                       " were written; complete checkpoints are as they were, so see what else "
                       "writes there.");
    }
  }
}

}  // namespace

CheckpointFolder::CheckpointFolder(const fs::path& run, FileLayer& files)
    : folder_(run / "checkpoints"), files_(files) {}

std::string CheckpointFolder::name(int64_t step, Form form) {
  char number[32];
  std::snprintf(number, sizeof number, "step-%09lld", static_cast<long long>(step));
  switch (form) {
    case Form::kPartial:
      return std::string(number) + ".partial";
    case Form::kReplaced:
      return std::string(number) + ".replaced";
    case Form::kFinal:
      break;
  }
  return number;
}

std::string CheckpointFolder::rank_file_name(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank-%04d.h5", rank);
  return name;
}

fs::path CheckpointFolder::path(int64_t step, Form form) const {
  return folder_ / name(step, form);
}

fs::path CheckpointFolder::path(int64_t step) const {
  return path(step, Form::kFinal);
}

fs::path CheckpointFolder::partial(int64_t step) const {
  return path(step, Form::kPartial);
}

std::vector<CheckpointFolder::Entry> CheckpointFolder::entries() const {
  std::error_code error;
  const std::vector<fs::path> found = names_in(folder_, error);
  if (error && error != std::errc::no_such_file_or_directory) fail(folder_, "read", error.value());
  std::vector<Entry> all;
  for (const fs::path& path : found) {
    const std::string file_name = path.filename().string();
    int64_t step = -1;
    constexpr size_t kPrefix = 5;  // "step-"
    if (file_name.size() < kPrefix) continue;
    std::from_chars(file_name.data() + kPrefix, file_name.data() + file_name.size(), step);
    if (step < 0 || !is_real_folder(path)) continue;
    for (const Form form : {Form::kFinal, Form::kPartial, Form::kReplaced})
      if (name(step, form) == file_name) all.push_back({step, form, is_complete(path), path});
  }
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.step, a.form) < std::tie(b.step, b.form);
  });
  return all;
}

std::vector<int64_t> CheckpointFolder::steps() const {
  std::vector<int64_t> steps;
  for (const Entry& entry : entries())
    if (entry.form == Form::kFinal && entry.complete) steps.push_back(entry.step);
  return steps;
}

CheckpointManifest CheckpointFolder::manifest(int64_t step) const {
  CheckpointManifest manifest = read_checkpoint_manifest(path(step));
  if (manifest.point.step != step) {
    throw StoreError((path(step) / kManifestName).string() + ": is of step " +
                     std::to_string(manifest.point.step) +
                     "; somebody renamed the folder, so give it its name back.");
  }
  return manifest;
}

std::string CheckpointFolder::text(int64_t step, const std::string& name) const {
  for (const SavedText& text : manifest(step).texts)
    if (text.name == name) return read_saved_text(path(step), text);
  throw StoreError(path(step).string() + ": was saved without a '" + name +
                   "'; take another checkpoint.");
}

void CheckpointFolder::move(const fs::path& from, const fs::path& to) {
  if (files_.rename(from, to) != 0) fail(from, "renamed to " + to.filename().string(), errno);
}

void CheckpointFolder::recover() {
  for (const Entry& entry : entries()) {
    std::error_code ignored;
    if (entry.form != Form::kReplaced || !entry.complete ||
        fs::exists(fs::symlink_status(path(entry.step), ignored)))
      continue;
    move(entry.path, path(entry.step));
    if (const int error = sync_folder(files_, folder_)) fail(folder_, "synced", error);
  }
}

void CheckpointFolder::begin(int64_t step) {
  if (files_.make_directory(folder_) == 0) {
    if (const int error = sync_folder(files_, folder_.parent_path()))
      fail(folder_.parent_path(), "synced", error);
  } else if (errno != EEXIST) {
    fail(folder_, "made", errno);
  }
  recover();
  for (const Form form : {Form::kReplaced, Form::kPartial}) {
    const fs::path left = path(step, form);
    if (const int error = remove_folder(files_, left, kManifestName)) fail(left, "removed", error);
  }
  if (files_.make_directory(partial(step)) != 0) fail(partial(step), "made", errno);
}

void CheckpointFolder::abandon(int64_t step) {
  [[maybe_unused]] const int left = remove_folder(files_, partial(step), kManifestName);
}

void CheckpointFolder::write_new(const fs::path& file, const std::string& text) {
  Descriptor descriptor(files_.create(file));
  if (descriptor.number() < 0) fail(file, "written", errno);
  int error = write_all(files_, descriptor.number(), text);
  if (error == 0 && files_.sync(descriptor.number()) != 0) error = errno;
  if (descriptor.close() != 0 && error == 0) error = errno;
  if (error != 0) fail(file, "written", error);
}

void CheckpointFolder::publish(CheckpointManifest manifest,
                               const std::vector<std::pair<std::string, std::string>>& texts) {
  const int64_t step = manifest.point.step;
  const fs::path folder = partial(step);
  try {
    check_files(folder, manifest.files);
    manifest.texts.clear();
    for (const auto& [name, text] : texts) {
      write_new(folder / name, text);
      manifest.texts.push_back(saved_text(name, text));
    }
    write_new(folder / kManifestName, write_checkpoint_manifest(manifest));
    if (const int error = sync_folder(files_, folder)) fail(folder, "synced", error);
    move_into_place(step);
    if (const int error = sync_folder(files_, folder_)) fail(folder_, "synced", error);
  } catch (...) {
    abandon(step);
    throw;
  }
  // What was there before under this name. If it cannot go now, prune() removes it or says why.
  [[maybe_unused]] int left = remove_folder(files_, folder, kManifestName);
  left = remove_folder(files_, path(step, Form::kReplaced), kManifestName);
}

void CheckpointFolder::move_into_place(int64_t step) {
  const fs::path from = partial(step), to = path(step);
  if (!is_complete(to)) {
    if (is_real_folder(to))  // half removed by a process that was killed
      if (const int error = remove_folder(files_, to, kManifestName)) fail(to, "removed", error);
    return move(from, to);
  }
  if (files_.exchange(from, to) == 0) return;
  // Some file systems cannot.
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) fail(to, "replaced", errno);
  replace_in_two_moves(step);
}

/// Between the moves there is no checkpoint under its name; recover() puts the one of before back.
void CheckpointFolder::replace_in_two_moves(int64_t step) {
  const fs::path before = path(step, Form::kReplaced);
  if (const int error = remove_folder(files_, before, kManifestName))
    fail(before, "removed", error);
  move(path(step), before);
  try {
    move(partial(step), path(step));
  } catch (const StoreError&) {
    move(before, path(step));
    throw;
  }
}

std::vector<int64_t> CheckpointFolder::kept(const std::vector<int64_t>& steps,
                                            const Retention& retention) const {
  std::vector<int64_t> kept;
  int64_t best_step = -1;
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto newer = static_cast<int64_t>(steps.size() - 1 - i);
    const bool is_regular = retention.keep_every > 0 && steps[i] % retention.keep_every == 0;
    if (newer < std::max<int64_t>(retention.keep_last, 1) || is_regular) kept.push_back(steps[i]);
    if (!retention.keep_best) continue;
    try {
      const double val_loss = manifest(steps[i]).point.val_loss;
      if (val_loss <= best) {  // of equal ones the newest; NaN is none
        best = val_loss;
        best_step = steps[i];
      }
    } catch (const StoreError&) {
      // Damaged: it is not the best, whatever it was.
    }
  }
  kept.push_back(best_step);
  return kept;
}

void CheckpointFolder::remove_all(const std::vector<Entry>& entries) {
  fs::path first;
  int first_error = 0;
  for (const Entry& entry : entries) {
    const int error = remove_folder(files_, entry.path, kManifestName);
    if (first_error != 0 || error == 0) continue;
    first_error = error;
    first = entry.path;
  }
  if (first_error != 0) fail(first, "removed", first_error);
}

void CheckpointFolder::prune(const Retention& retention) {
  recover();
  const std::vector<int64_t> complete = steps();
  if (complete.empty()) return;
  const std::vector<int64_t> stay = kept(complete, retention);
  std::vector<Entry> go;
  for (const Entry& entry : entries()) {
    const bool stays = entry.form == Form::kFinal && entry.complete &&
                       std::find(stay.begin(), stay.end(), entry.step) != stay.end();
    if (!stays && entry.step <= complete.back()) go.push_back(entry);
  }
  remove_all(go);
}

void CheckpointFolder::remove_after(int64_t step) {
  recover();
  std::vector<Entry> go;
  for (const Entry& entry : entries())
    if (entry.step > step) go.push_back(entry);
  // The newest first: what is left at any moment is one run's beginning, without a hole.
  std::reverse(go.begin(), go.end());
  remove_all(go);
}

}  // namespace zerolab
