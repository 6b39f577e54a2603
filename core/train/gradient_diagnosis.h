#pragma once
// Which gradient stopped being finite first.

#include <cstdint>
#include <functional>
#include <string>

#include "zerolab/communicator.h"
#include "zerolab/parameters.h"

namespace zerolab {

/// [collective] Runs `micro_batch(0 ... count)`, forward and backward, and looks at every gradient
/// as it comes. Returns the first one that is not finite, of the first micro-batch that has one
/// over all ranks, in the order of backward, as part of a sentence; empty if there is none. The
/// caller drops the gradients.
std::string find_bad_gradient(Parameters& parameters, Communicator& ranks, int64_t count,
                              const std::function<void(int64_t micro)>& micro_batch);

}  // namespace zerolab
