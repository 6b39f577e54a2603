#pragma once
// Who writes what of a checkpoint: each piece once, however many ranks hold copies of it, and the
// ranks about the same number of bytes. (Pieces that overlap without being copies are all written.)

#include <cstdint>
#include <vector>

#include "train/whole_state.h"

namespace zerolab {

/// A part of tensor `tensor` of a WholeState that this rank writes.
struct SavePart {
  size_t tensor = 0;
  int64_t offset = 0, length = 0;
};

/// [local] This rank's parts, from what all ranks know alike. Copies of a long piece are cut, of a
/// short one the least loaded rank writes it whole.
std::vector<SavePart> plan_save(const WholeState& state, int rank, int num_ranks);

}  // namespace zerolab
