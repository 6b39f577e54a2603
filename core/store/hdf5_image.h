#pragma once
// An HDF5 file built in memory, so that its bytes can be put on the disk by calls whose errors
// can be trusted: HDF5 reports a full disk late or never, and may crash while it cleans up after
// one.

#include <filesystem>
#include <functional>
#include <string>

#include <hdf5.h>

namespace zerolab {

/// The bytes of the file that `fill` makes, closed as a file on disk is. `file` is what errors
/// name. Errors: StoreError, and what `fill` throws.
std::string build_hdf5_image(const std::filesystem::path& file,
                             const std::function<void(hid_t)>& fill);

}  // namespace zerolab
