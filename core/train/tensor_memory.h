#pragma once
// How much memory this process's CPU tensors take, counted where LibTorch allocates it.
//
// Ranks: local.

#include <cstdint>

namespace zerolab {

/// From here on every CPU tensor counts. Once, before the first tensor; harmless again.
void count_tensor_memory();

/// Bytes of all CPU tensors, now and at the most so far; 0 where nothing counts.
int64_t live_tensor_bytes();
int64_t peak_tensor_bytes();

}  // namespace zerolab
