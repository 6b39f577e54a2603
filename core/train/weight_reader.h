#pragma once
// Reads a source's weights as a model has them: in its dtype and its order of elements.
//
// Ranks: local.
// Errors: StoreError that names the file and the tensor.

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "store/tensor_source.h"
#include "train/weight_match.h"

namespace zerolab {

class WeightReader {
 public:
  /// The source outlives it.
  explicit WeightReader(const TensorSource& source) : source_(source) {}

  /// Elements from `first` on into `out`, [count] and contiguous, rounded to its dtype. Reads only
  /// these; of a transposed tensor all, which stays in memory until another one is read.
  void read(const WeightOrigin& origin, int64_t first, const at::Tensor& out);
  /// Whether two hold the same numbers; as many elements.
  bool equal(const WeightOrigin& a, const WeightOrigin& b);

 private:
  const SourceTensor& tensor(const WeightOrigin& origin) const {
    return source_.tensors[origin.tensor];
  }

  const TensorSource& source_;
  std::optional<size_t> turned_;  // the transposed tensor that is in memory
  at::Tensor turned_values_;
};

}  // namespace zerolab
