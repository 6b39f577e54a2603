// A manifest without the entry symbol; with BORROWS, a library it depends on has one.

#include "flat_rate.h"

namespace {
constexpr zerolab::PluginEntry kEntries[] = {
    zerolab::entry<FlatRate>("scheduler/symbolless", "1.0.0", "no symbol")};
[[gnu::section(".zerolab"), gnu::used, gnu::retain]] constinit const auto kManifest =
    zerolab::detail::manifest<zerolab::detail::write_manifest(kEntries, 1, nullptr)>(kEntries, 1);
}  // namespace

#ifdef BORROWS
extern "C" int zerolab_test_lend();
extern "C" __attribute__((visibility("default"))) int zerolab_test_borrow() {
  return zerolab_test_lend();
}
#endif
