#pragma once
// Training state as named pieces of whole tensors, never as "rank 3's blob": any reader can
// assemble them, and another strategy or number of ranks can load them.

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace zerolab {

struct StatePiece {
  std::string parameter;       ///< the parameter's name
  std::string state;           ///< "parameter", or an optimizer state's name
  std::vector<int64_t> shape;  ///< of the whole tensor
  int64_t offset = 0;          ///< first element of this piece in the flattened whole tensor
  int64_t length = 0;
  at::Tensor data;  ///< [length], a view: writing it changes the state
};

/// Bytes that a rank holds, by category.
struct HeldBytes {
  int64_t parameters = 0, gradients = 0, optimizer = 0, buckets = 0;
};

}  // namespace zerolab
