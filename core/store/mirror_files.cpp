#include "store/mirror_files.h"

#include <array>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include "store/checkpoint_folder.h"
#include "store/sessions.h"

namespace zerolab {
namespace {

std::set<std::string> files_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->is_regular_file(error)) names.insert(entry->path().filename().string());
  return names;
}

}  // namespace

std::string mirrored_run(const std::string& remote, const std::filesystem::path& run) {
  return join_remote(remote, whole_path(run).filename().string());
}

std::string mirrored_checkpoints(const std::string& remote, const std::filesystem::path& run) {
  return mirrored_run(remote, run) + "/checkpoints";
}

bool is_small_file(const std::string& name) {
  if (name.find('/') != std::string::npos) return false;
  constexpr std::array<std::string_view, 4> plain{"metrics.jsonl", "metrics.superseded.jsonl",
                                                  kSessionsName, kSummaryName};
  for (const std::string_view known : plain)
    if (name == known) return true;
  return (name.starts_with("config.resolved") && name.ends_with(".toml")) ||
         (name.starts_with("environment") && name.ends_with(".json"));
}

std::set<std::string> small_files_in(const std::filesystem::path& run) {
  std::set<std::string> names = files_in(run);
  std::erase_if(names, [](const std::string& name) { return !is_small_file(name); });
  return names;
}

std::set<std::string> files_but_manifest(const std::filesystem::path& checkpoint) {
  std::set<std::string> names = files_in(checkpoint);
  names.erase(kManifestName);
  return names;
}

std::set<int64_t> complete_steps(const std::set<std::string>& files) {
  constexpr std::string_view prefix = "checkpoints/step-", suffix = "/manifest.json";
  std::set<int64_t> steps;
  for (const std::string& file : files) {
    if (!file.starts_with(prefix) || !file.ends_with(suffix)) continue;
    if (file.size() < prefix.size() + suffix.size()) continue;
    int64_t step = -1;
    const char* end = file.data() + file.size() - suffix.size();
    const auto parsed = std::from_chars(file.data() + prefix.size(), end, step);
    if (parsed.ec != std::errc() || parsed.ptr != end || step < 0) continue;
    if (CheckpointFolder("").path(step).string() + std::string(suffix) == file) steps.insert(step);
  }
  return steps;
}

FileChoice choose_all(std::set<std::string> names) {
  return {{}, std::move(names)};
}

FileChoice choose_all_but_manifest(std::set<std::string> names) {
  return {{std::string("--exclude=/") + kManifestName}, std::move(names)};
}

FileChoice choose_manifest() {
  return {{std::string("--include=/") + kManifestName}, {kManifestName}};
}

void remove_quietly(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
}

}  // namespace zerolab
