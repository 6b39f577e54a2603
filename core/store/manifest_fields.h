#pragma once
// The fields of a manifest's JSON, each checked for its type and its range: whoever reads a
// checkpoint may trust the places and sizes in it.
//
// Ranks: local.
// Errors: StoreError that names the text and the field.

#include <cstdint>
#include <string>

#include "store/manifest.h"

namespace zerolab {

inline constexpr const char* kCheckpointFormat = "zerolab-checkpoint";
inline constexpr int64_t kCheckpointFormatVersion = 1;

/// The checksum in `text` is not looked at. `where` is what errors begin with.
CheckpointManifest manifest_of_fields(const std::string& text, const std::string& where);
SealedFile sealed_file_of_fields(const std::string& text);

}  // namespace zerolab
