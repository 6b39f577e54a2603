#include "train/autocast_scope.h"

#include <ATen/autocast_mode.h>

namespace zerolab {

AutocastScope::AutocastScope(std::optional<at::ScalarType> dtype, WeightCopies copies)
    : active_(dtype.has_value()) {
  if (!active_) return;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, *dtype);
  at::autocast::set_autocast_cache_enabled(copies == WeightCopies::kKept);
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::set_autocast_cache_enabled(true);
}

}  // namespace zerolab
