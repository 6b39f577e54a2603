#pragma once
// The scale of the loss in float16: it doubles after many finite steps, and halves when gradients
// overflow. A Precision plugin holds one and forwards loss_scale(), observe(), state() and
// restore() to it, or derives from ScaledPrecision (scaled_precision.h), which does.
//
// Ranks: local, and the same on every rank that is told the same.
// Source: Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740, section 3.2. With
// hysteresis = 1 and min_scale out of reach it is torch.amp.GradScaler's rule; hysteresis and
// min_scale are DeepSpeed's.

#include <cstdint>
#include <map>
#include <string>

#include "zerolab/export.h"
#include "zerolab/options.h"

namespace zerolab {

/// By the names that PyTorch and DeepSpeed give them. Scales and factors are powers of two, so that
/// scaling rounds nothing.
struct ZEROLAB_API LossScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  int64_t hysteresis = 1;
  double min_scale = 1;

  /// Describes the fields above; for the describe() of a struct that derives from this.
  template <class Options>
  static void describe_into(Describe<Options>& d);
  void check(Problems& problems) const;
};

class ZEROLAB_API DynamicLossScaler {
 public:
  explicit DynamicLossScaler(const LossScalerOptions& options);

  /// [hot] A power of two that float32 holds.
  double scale() const { return scale_; }
  /// [hot] After each step. Not finite: the count of finite steps starts again, and the scale is
  /// multiplied by backoff_factor (never below min_scale), unless the hysteresis has overflows left
  /// to bear: the first hysteresis - 1 of them only use it up. Finite: after growth_interval such
  /// steps in a row the scale is multiplied by growth_factor (not beyond float32), and the
  /// hysteresis is whole again. Nothing else restores it.
  void update(bool finite);
  /// Numbers by name, as Precision::state() gives them: loss_scale, growth_tracker (finite steps
  /// in a row), hysteresis_left (overflows until the scale is lowered).
  std::map<std::string, double> state() const;
  /// Takes back what it knows, within these options' limits; passes over other names. Errors: Error
  /// if a number cannot be.
  void restore(const std::map<std::string, double>& state);

 private:
  LossScalerOptions options_;
  double scale_;
  int64_t finite_steps_ = 0;
  int64_t hysteresis_left_;
};

template <class Options>
void LossScalerOptions::describe_into(Describe<Options>& d) {
  const auto field = [&d]<class T>(const char* name, T LossScalerOptions::*member,
                                   const char* doc) {
    return d.field(name, static_cast<T Options::*>(member), doc);
  };
  field("init_scale", &LossScalerOptions::init_scale,
        "factor on the loss at the start, a power of two")
      .above(0);
  field("growth_factor", &LossScalerOptions::growth_factor,
        "what the scale is multiplied by after growth_interval finite steps, a power of two")
      .above(1);
  field("backoff_factor", &LossScalerOptions::backoff_factor,
        "what the scale is multiplied by when a gradient overflows, a power of two")
      .above(0)
      .below(1);
  field("growth_interval", &LossScalerOptions::growth_interval,
        "finite steps in a row until the scale grows")
      .unit("steps")
      .at_least(1);
  field("hysteresis", &LossScalerOptions::hysteresis,
        "overflows until the scale is lowered: the ones before only skip their step; counted anew "
        "when the scale grows")
      .unit("overflows")
      .at_least(1);
  field("min_scale", &LossScalerOptions::min_scale,
        "the scale is not lowered below this, a power of two, at most init_scale")
      .above(0);
}

}  // namespace zerolab
