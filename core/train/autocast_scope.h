#pragma once
// Autocast for forward passes.
// Ranks: local.

#include <optional>

#include <c10/core/ScalarType.h>

namespace zerolab {

/// What becomes of a weight's low-precision copy. Training makes one at each use: if it were kept,
/// the gradients of a weight that is used twice would be added in low precision, and under some
/// strategies only. Without gradients the copies can stay as long as the scope does, and hold the
/// same numbers: weights must not change meanwhile.
enum class WeightCopies { kEachUse, kKept };

class AutocastScope {
 public:
  /// Nothing happens without a dtype.
  explicit AutocastScope(std::optional<at::ScalarType> dtype,
                         WeightCopies copies = WeightCopies::kEachUse);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool active_;
};

}  // namespace zerolab
