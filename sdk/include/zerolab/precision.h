#pragma once
// Kind `precision`: dtypes for parameters, compute and gradients; loss scaling. (The wire's
// dtype is sharding's.)
//
// Ranks: local, and the same on every rank: observe() is told one value that all ranks agreed
// on.
// Source: Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740.
//
// Implementing this:
//  - policy() never changes after construction.
//  - loss_scale() is a power of two.
//  - What observe() changes, state() gives and restore() takes back, or a resumed run scales
//    otherwise than one that never stopped.

#include <map>
#include <optional>
#include <string>

#include <c10/core/ScalarType.h>

#include "zerolab/export.h"
#include "zerolab/kind.h"

namespace zerolab {

struct PrecisionPolicy {
  at::ScalarType parameter_dtype =
      at::kFloat;                              ///< what the model holds; masters are always float32
  at::ScalarType gradient_dtype = at::kFloat;  ///< what gradients are kept, sent and summed in
  std::optional<at::ScalarType> autocast_dtype;  ///< run the model under autocast to this dtype
};

class ZEROLAB_API Precision {
 public:
  static constexpr Kind kKind = Kind::kPrecision;
  virtual ~Precision();
  virtual PrecisionPolicy policy() const = 0;
  /// [hot] Factor on the loss of this step.
  virtual double loss_scale() const { return 1; }
  /// [hot] Told after each step whether all gradients on all ranks were finite.
  virtual void observe(bool /*finite*/) {}
  /// Numbers by name ("loss_scale"), as a checkpoint keeps them.
  virtual std::map<std::string, double> state() const { return {}; }
  /// Goes on from state(); names that it does not know are of another version, and passed over.
  virtual void restore(const std::map<std::string, double>& /*state*/) {}
};

}  // namespace zerolab
