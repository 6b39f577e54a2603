#pragma once
// What a folder of another program says about its model beside the weights.
// Ranks: local.

#include <filesystem>
#include <string>

#include "zerolab/model.h"

namespace zerolab {

/// What the config.json beside `weights` says otherwise than the layout's settings, as part of a
/// sentence; empty if nothing, or if there is none. Names that it does not have count as agreed.
/// Errors: ConfigError for a config.json that is no JSON object.
std::string foreign_differences(const std::filesystem::path& weights, const WeightLayout& layout);

}  // namespace zerolab
