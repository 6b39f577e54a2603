#pragma once
// Random generators keyed by what they are for, so that no order of calls and no world size
// changes a draw. There is no global generator.

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include <ATen/core/Generator.h>

#include "zerolab/export.h"

namespace zerolab {

/// A well-mixed 64-bit key from numbers, in order (splitmix64 over each).
ZEROLAB_API uint64_t mix_key(std::initializer_list<uint64_t> parts);
/// A stable 64-bit hash of a name (FNV-1a).
ZEROLAB_API uint64_t name_key(std::string_view name);
/// A fresh CPU generator (Mersenne Twister) seeded with `key`, of which LibTorch uses the lower 32
/// bits.
ZEROLAB_API at::Generator make_generator(uint64_t key);

}  // namespace zerolab
