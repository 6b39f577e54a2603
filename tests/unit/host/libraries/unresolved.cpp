// A plugin that needs a function which nothing provides.

#include <string>

#include "flat_rate.h"

namespace zerolab_test {
double nowhere(const std::string& text, int number);
}

namespace {
class Unresolved : public FlatRate {
 public:
  using FlatRate::FlatRate;
  double lr(int64_t) const override { return zerolab_test::nowhere("", 1); }
};
}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Unresolved>("scheduler/unresolved", "1.0.0", "cannot be bound"));
