#pragma once
// A precision whose loss is scaled dynamically: a policy of dtypes, and a DynamicLossScaler that
// loss_scale(), observe(), state() and restore() go to. A plugin that derives from it states its
// policy and its options.
//
// Ranks: local, and the same on every rank that is told the same.
// Source: Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "zerolab/export.h"
#include "zerolab/gradient_dtype.h"
#include "zerolab/loss_scaler.h"
#include "zerolab/precision.h"

namespace zerolab {

struct ScaledPrecisionOptions : GradientDtypeOptions, LossScalerOptions {
  /// Describes all fields, for the describe() of a struct that derives from this; `gradient_words`
  /// as in GradientDtypeOptions.
  template <class Options>
  static void describe_into(Describe<Options>& d, std::vector<std::string> gradient_words) {
    GradientDtypeOptions::describe_into(d, std::move(gradient_words));
    LossScalerOptions::describe_into(d);
  }
};

class ZEROLAB_API ScaledPrecision : public Precision {
 public:
  ScaledPrecision(const PrecisionPolicy& policy, const LossScalerOptions& options);
  ~ScaledPrecision() override;

  PrecisionPolicy policy() const override { return policy_; }
  double loss_scale() const override { return scaler_.scale(); }
  void observe(bool finite) override { scaler_.update(finite); }
  std::map<std::string, double> state() const override { return scaler_.state(); }
  void restore(const std::map<std::string, double>& state) override { scaler_.restore(state); }

 private:
  PrecisionPolicy policy_;
  DynamicLossScaler scaler_;
};

}  // namespace zerolab
