// A library whose entry symbol a plugin that depends on it must not pass off as its own.

#include "flat_rate.h"

ZEROLAB_PLUGIN(zerolab::entry<FlatRate>("scheduler/symbolless", "1.0.0", "lent"));

extern "C" __attribute__((visibility("default"))) int zerolab_test_lend() {
  return 1;
}
