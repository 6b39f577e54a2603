#include "store/mirror_files.h"

#include <array>
#include <string_view>
#include <system_error>
#include <utility>

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

std::filesystem::path whole_path(const std::filesystem::path& run) {
  const std::filesystem::path path = std::filesystem::absolute(run).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

std::string mirrored_run(const std::string& remote, const std::filesystem::path& run) {
  return join_remote(remote, whole_path(run).filename().string());
}

std::string mirrored_checkpoints(const std::string& remote, const std::filesystem::path& run) {
  return mirrored_run(remote, run) + "/checkpoints";
}

bool is_small_file(const std::string& name) {
  constexpr std::array<std::string_view, 4> plain{"metrics.jsonl", "metrics.superseded.jsonl",
                                                  "sessions.jsonl", "summary.json"};
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
