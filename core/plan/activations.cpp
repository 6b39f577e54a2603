#include "plan/activations.h"

#include <algorithm>
#include <vector>

namespace zerolab {
namespace {

/// Elements for each token.
struct UnitWidths {
  int64_t kept = 0;   ///< inputs and outputs of the unit's matrices
  int64_t input = 0;  ///< the unit's own input: the narrowest of them
};

std::vector<UnitWidths> unit_widths(const Parameters& parameters) {
  std::vector<UnitWidths> units(static_cast<size_t>(parameters.num_units()));
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterInfo& info = parameters.info(i);
    if (info.shape.size() < 2 || info.numel == 0) continue;
    const int64_t out = info.shape.front(), in = info.numel / out;
    UnitWidths& unit = units[static_cast<size_t>(info.unit)];
    unit.kept += in + out;
    unit.input = unit.input == 0 ? in : std::min(unit.input, in);
  }
  return units;
}

}  // namespace

int64_t activation_bytes(const Parameters& parameters, int64_t tokens, at::ScalarType compute,
                         bool activation_checkpointing) {
  const std::vector<UnitWidths> units = unit_widths(parameters);
  int64_t width = units.front().kept, widest = 0;
  for (size_t i = 1; i < units.size(); ++i) {
    width += activation_checkpointing ? units[i].input : units[i].kept;
    widest = std::max(widest, units[i].kept);
  }
  if (activation_checkpointing) width += widest;
  return width * tokens * static_cast<int64_t>(c10::elementSize(compute));
}

}  // namespace zerolab
