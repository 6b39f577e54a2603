#pragma once
// Folders, looked at and removed without following links: a link is nothing of ours, wherever it
// leads.
//
// Ranks: local.
// Errors: errno values; nothing throws.

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "store/file_layer.h"

namespace zerolab {

bool is_real_folder(const std::filesystem::path& path);

/// The paths of all that is in a folder, sorted.
std::vector<std::filesystem::path> names_in(const std::filesystem::path& folder,
                                            std::error_code& error);

/// Removes all that it can of a folder, or a file. The file `first` of the folder goes first and
/// for good, so that what is left at any moment lacks it; if it cannot go, nothing does. Returns 0,
/// or the errno of the first call that failed. Nothing there is no failure.
[[nodiscard]] int remove_folder(FileLayer& files, const std::filesystem::path& path,
                                const std::string& first);

}  // namespace zerolab
