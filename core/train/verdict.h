#pragma once
// What two runs of one experiment have in common: the numbers of each, where they differ, and the
// sentence that says so. No LibTorch here: the files that print include it.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace zerolab {

struct StepTrace {
  double loss = 0, grad_norm = 0;
  bool skipped = false;  ///< a gradient was not finite: no update
};

/// A run as rank 0 saw it.
struct RunTrace {
  std::vector<StepTrace> steps;
  double val_loss = std::numeric_limits<double>::quiet_NaN();  ///< after the last step
  double seconds = 0;
  std::string disagreement;  ///< where another rank saw it otherwise; empty if none did
};

/// A whole tensor of one run against the same of another.
struct TensorDifference {
  std::string parameter;
  std::string state;  ///< "parameter", or an optimizer state's name
  int64_t numel = 0;
  int64_t num_differing = 0;  ///< elements whose bits differ
  double largest = 0;         ///< absolute difference of an element; NaN if one is NaN
  std::string unlike;         ///< why they cannot be compared; empty if they can
  bool differs() const { return num_differing > 0 || !unlike.empty(); }
};

/// "parameter 'head.weight'", "state 'exp_avg' of parameter 'head.weight'".
std::string tensor_title(const std::string& parameter, const std::string& state);

/// Nine digits; seventeen, which tell any two numbers apart, if `exact`.
std::string number_text(double value, bool exact);
/// Equal to the last bit; any NaN is equal to any other.
bool same_number(double a, double b);

struct Verification {
  std::string name, sharding, against;  ///< of the experiment, its strategy, the reference
  int num_ranks = 1, threads = 1;
  double tolerance = 0;  ///< allowed relative difference of losses; 0: not a bit
  bool repeats = true;   ///< the reference repeated itself
  /// The reference; and the experiment's own strategy, or the reference's second run if that is
  /// all there is (it does not repeat itself, or both are one strategy).
  RunTrace reference, own;
  std::vector<TensorDifference> tensors;  ///< of the second against the first
  int64_t num_not_compared = 0;           ///< tensors that only the second has

  /// The first step, then rank, then tensor that differs by a bit, as part of a sentence; empty if
  /// none does.
  std::string first_difference() const;
  /// |own - reference| / |reference| of the losses, validation included, at its largest.
  double largest_loss_difference() const;
  /// Why nothing is proven, as a sentence; empty if it is.
  std::string problem() const;
};

}  // namespace zerolab
