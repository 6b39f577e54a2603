#pragma once
// Looks at each step before its update: is the loss finite, is the gradient, is the loss far above
// those before? Pure: every rank gives it the same numbers and gets the same verdict.
// Ranks: local.

#include <cstdint>
#include <string>
#include <vector>

#include "experiment/experiment.h"

namespace zerolab {

enum class GuardAction { kNone, kSkip, kStop, kRollback };

struct GuardVerdict {
  GuardAction action = GuardAction::kNone;
  /// Why, as part of a sentence; empty where loss scaling explains the overflow.
  std::string reason;
  bool not_finite = false;
};

class Guard {
 public:
  explicit Guard(const GuardConfig& config) : config_(config) {}
  /// [hot] Of each step once. `scaled`: the loss was multiplied, so that a gradient that overflows
  /// says that the scale is too large.
  GuardVerdict judge(double loss, bool gradient_finite, bool scaled);

  /// What a resumed run needs: losses of the last accepted steps, and skipped steps since.
  const std::vector<double>& recent_losses() const { return recent_; }
  int64_t skips_in_a_row() const { return skips_; }
  void restore(std::vector<double> recent_losses, int64_t skips_in_a_row);

 private:
  GuardVerdict look(double loss, bool gradient_finite, bool scaled) const;
  /// Empty if the loss is not far above the window.
  std::string spike(double loss) const;

  GuardConfig config_;
  std::vector<double> recent_;  // oldest first, at most `window`
  int64_t skips_ = 0;
};

}  // namespace zerolab
