#pragma once
// Which data a run trains on, as a short text: so that a run never goes on with other data under
// the same name.

#include <cstdint>
#include <string>

#include "zerolab/data.h"

namespace zerolab {

/// [local] A hash of the vocabulary's size, of both splits' sizes, and of samples spread evenly
/// over both. `data` is open. Most changes of a text show; one that misses all of the samples, and
/// changes no size, does not.
std::string data_digest(const Data& data, int64_t sequence_length);

}  // namespace zerolab
