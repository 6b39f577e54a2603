// Two plugins in one file.

#include "flat_rate.h"

namespace {
class OtherRate : public FlatRate {
 public:
  using FlatRate::FlatRate;
  double lr(int64_t) const override { return 2; }
};
}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<FlatRate>("scheduler/first_of_two", "1.0.0", "one"),
               zerolab::entry<OtherRate>("scheduler/second_of_two", "1.0.0", "two"));
