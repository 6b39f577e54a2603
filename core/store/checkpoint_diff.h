#pragma once
// Compares two sets of tensors element by element, in blocks: neither has to fit into memory.
//
// Ranks: local.
// Errors: StoreError that names the file, and the tensor, if one cannot be read.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "store/element_values.h"
#include "store/tensor_source.h"

namespace zerolab {

/// A tensor that both have.
struct TensorComparison {
  std::string parameter, state;
  std::string form_a, form_b;  ///< "float32 [16, 8]"; where they differ, no element is compared
  int64_t elements = 0;
  ElementDifferences found;
  bool same_form() const { return form_a == form_b; }
  bool identical() const { return same_form() && found.differing == 0; }
};

struct CounterDifference {
  std::string name, a, b;  ///< "": it has none
  bool is_state = true;    ///< false: it makes no difference to training
  bool within = false;     ///< the tolerance
};

struct CheckpointDiff {
  std::vector<std::string> only_a, only_b;  ///< "'wte.weight' (exp_avg)"
  std::vector<TensorComparison> tensors;
  std::vector<CounterDifference> counters;  ///< those that differ, if both sides have any
  double tolerance = 0;
  bool bit_identical() const;
  /// Bit-identical, or every number that differs does so by at most the tolerance, if that is not
  /// 0; whole numbers among the counters never may.
  bool equal() const;
};

/// "float32 [16, 8]"
std::string form_text(const PieceInfo& tensor);
/// `progress`: elements that are done, and of all. `parameters_only`: no states, no counters.
CheckpointDiff diff_tensors(const TensorSource& a, const TensorSource& b, double tolerance,
                            bool parameters_only,
                            const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace zerolab
