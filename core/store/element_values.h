#pragma once
// What the bytes of tensors' elements are worth: whether they are finite, and how far two blocks
// are apart.
//
// Ranks: local.
// Errors: none.

#include <cstdint>

#include "store/checkpoint_file.h"

namespace zerolab {

/// Number of the first of `count` elements that is infinite or no number; -1 if there is none.
int64_t first_not_finite(TensorDtype dtype, const void* elements, int64_t count);

/// How two blocks of as many elements differ.
struct ElementDifferences {
  int64_t differing = 0;  ///< elements whose bits differ
  int64_t first = -1;     ///< the number of the first of them
  /// The largest absolute difference; infinite where exactly one is no number, or infinite. 0 if
  /// only signs of zero, or bits of what is no number, differ.
  double largest = 0;
};
ElementDifferences compare_elements(TensorDtype dtype, const void* a, const void* b, int64_t count);

}  // namespace zerolab
