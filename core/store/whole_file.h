#pragma once
// The tensors of a consolidated HDF5 file, found without a manifest.
//
// HDF5 is asked for names and for the places of chunks only; values are then read and checked as a
// checkpoint's are. A damaged file is an error, but HDF5 itself may crash on one that was damaged
// on purpose.
// Ranks: local.
// Errors: StoreError that names the file.

#include <filesystem>
#include <vector>

#include "store/checkpoint_file.h"

namespace zerolab {

/// Whole tensors (offset 0, all elements). Errors: StoreError if the file is no checkpoint file, or
/// holds parts of tensors only.
std::vector<SealedPiece> find_whole_tensors(const std::filesystem::path& file);

}  // namespace zerolab
