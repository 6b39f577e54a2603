#include "zerolab/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "zerolab/error.h"

namespace zerolab {
namespace {

bool fits_float32(double scale) {
  return scale >= std::numeric_limits<float>::min() && scale <= std::numeric_limits<float>::max();
}

bool is_power_of_two(double value) {
  int exponent = 0;
  return fits_float32(value) && std::frexp(value, &exponent) == 0.5;
}

/// A count that a checkpoint holds, at least `low`; no more than the `most` of these options, which
/// may be others than those it was saved with.
int64_t restored_count(const std::string& name, double value, int64_t low, int64_t most) {
  const bool good =
      value == std::floor(value) && value >= static_cast<double>(low) && value <= 0x1p53;
  if (!good) {
    throw Error("precision state '" + name + "' is " + to_toml(value) +
                ": it must be an integer of at least " + std::to_string(low) +
                "; resume from another checkpoint.");
  }
  return std::min(static_cast<int64_t>(value), most);
}

}  // namespace

void LossScalerOptions::check(Problems& problems) const {
  for (const auto& [name, value] : {std::pair{"init_scale", init_scale},
                                    {"growth_factor", growth_factor},
                                    {"backoff_factor", backoff_factor},
                                    {"min_scale", min_scale}}) {
    if (!is_power_of_two(value)) {
      problems.add(name, "must be a power of two that float32 holds, such as " +
                             std::string(value < 1 ? "0.5" : "2.0") + ", is " + to_toml(value));
    }
  }
  if (min_scale > init_scale)
    problems.add("min_scale", "must not exceed init_scale (" + to_toml(init_scale) + "), is " +
                                  to_toml(min_scale));
}

DynamicLossScaler::DynamicLossScaler(const LossScalerOptions& options)
    : options_(options), scale_(options.init_scale), hysteresis_left_(options.hysteresis) {}

void DynamicLossScaler::update(bool finite) {
  if (!finite) {
    finite_steps_ = 0;
    if (hysteresis_left_ > 1) {
      --hysteresis_left_;
    } else {
      scale_ = std::max(scale_ * options_.backoff_factor, options_.min_scale);
    }
    return;
  }
  if (++finite_steps_ < options_.growth_interval) return;
  finite_steps_ = 0;
  hysteresis_left_ = options_.hysteresis;
  const double grown = scale_ * options_.growth_factor;
  if (fits_float32(grown)) scale_ = grown;
}

std::map<std::string, double> DynamicLossScaler::state() const {
  return {{"loss_scale", scale_},
          {"growth_tracker", static_cast<double>(finite_steps_)},
          {"hysteresis_left", static_cast<double>(hysteresis_left_)}};
}

void DynamicLossScaler::restore(const std::map<std::string, double>& state) {
  for (const auto& [name, value] : state) {
    if (name == "loss_scale") {
      if (!is_power_of_two(value)) {
        throw Error("precision state 'loss_scale' is " + to_toml(value) +
                    ": it must be a power of two that float32 holds; resume from another "
                    "checkpoint.");
      }
      scale_ = std::max(value, options_.min_scale);
    } else if (name == "growth_tracker") {
      finite_steps_ = restored_count(name, value, 0, options_.growth_interval - 1);
    } else if (name == "hysteresis_left") {
      hysteresis_left_ = restored_count(name, value, 1, options_.hysteresis);
    }
  }
}

}  // namespace zerolab
