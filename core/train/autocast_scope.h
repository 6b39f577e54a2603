#pragma once
// Autocast for a forward pass. The cache of low-precision weights is off: with it, the gradients
// of a weight that is used twice would be added in low precision, and under some strategies
// only.
// Ranks: local.

#include <optional>

#include <c10/core/ScalarType.h>

namespace zerolab {

class AutocastScope {
 public:
  /// Nothing happens without a dtype.
  explicit AutocastScope(std::optional<at::ScalarType> dtype);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool active_;
};

}  // namespace zerolab
