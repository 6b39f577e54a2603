#pragma once
// What the mirror holds, and where.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "store/file_layer.h"
#include "store/manifest.h"
#include "store/rclone.h"

namespace zerolab {

/// In the run's folder, for the time that small files are copied.
inline constexpr const char* kMirrorPartial = "mirror.partial";
inline constexpr const char* kSummaryName = "summary.json";
/// Levels to list of a mirrored run, so that the files of its checkpoints are among them.
inline constexpr int kDepthOfRun = 3;

/// The run's folder in the mirror.
std::string mirrored_run(const std::string& remote, const std::filesystem::path& run);
std::string mirrored_checkpoints(const std::string& remote, const std::filesystem::path& run);

/// Of the files in a run's folder, those that are mirrored.
bool is_small_file(const std::string& name);
std::set<std::string> small_files_in(const std::filesystem::path& run);
/// All files in a checkpoint's folder but the manifest. Empty if the folder is gone.
std::set<std::string> files_but_manifest(const std::filesystem::path& checkpoint);

/// The steps of complete checkpoints among the files of a mirrored run.
std::set<int64_t> complete_steps(const std::set<std::string>& files);

FileChoice choose_all(std::set<std::string> names);
FileChoice choose_all_but_manifest(std::set<std::string> names);
FileChoice choose_manifest();

/// Gives up on errors, without a word: for what nobody needs any more.
void remove_quietly(const std::filesystem::path& path);

}  // namespace zerolab
