#include "zerolab/scaled_precision.h"

namespace zerolab {

ScaledPrecision::ScaledPrecision(const PrecisionPolicy& policy, const LossScalerOptions& options)
    : policy_(policy), scaler_(options) {}

ScaledPrecision::~ScaledPrecision() = default;

}  // namespace zerolab
