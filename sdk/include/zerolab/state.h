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

/// State that has no place in a whole tensor: it belongs to one rank of one strategy on one number
/// of ranks, and is left behind when any of these changes.
struct LocalState {
  std::string name;  ///< unique in the strategy, of [a-z0-9_]
  at::Tensor data;   ///< 1-D, contiguous, a view: writing it changes the state; may change any time
};

/// Bytes that a rank holds, by category, in tensors that its strategy made.
struct HeldBytes {
  int64_t parameters = 0;  ///< whole ones or shards, frozen ones included
  int64_t gradients = 0;   ///< that stay until the update
  int64_t optimizer = 0;   ///< states, and float32 masters where the model computes with others
  int64_t buckets = 0;   ///< on their way: gradients in buckets, what collectives send and receive
  int64_t gathered = 0;  ///< parameters gathered for units, at the peak
  int64_t states() const { return parameters + gradients + optimizer; }
  int64_t total() const { return states() + buckets + gathered; }
  bool operator==(const HeldBytes&) const = default;
};

}  // namespace zerolab
