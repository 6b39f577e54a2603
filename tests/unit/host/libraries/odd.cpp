// A plugin whose manifest is right and whose table is wrong in the way that ZEROLAB_TEST_ODD names.

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "flat_rate.h"

namespace {

constexpr zerolab::PluginEntry kEntries[] = {
    zerolab::entry<FlatRate>("scheduler/odd", "1.0.0", "odd")};
[[gnu::section(".zerolab"), gnu::used, gnu::retain]] constinit const auto kManifest =
    zerolab::detail::manifest<zerolab::detail::write_manifest(kEntries, 1, nullptr)>(kEntries, 1);

zerolab::PluginEntry entry = kEntries[0];
zerolab::PluginTable table{zerolab::kPluginMagic, sizeof(zerolab::PluginTable), &entry, 1};

}  // namespace

extern "C" __attribute__((visibility("default"))) const zerolab::PluginTable* zerolab_plugin() {
  const char* const variable = std::getenv("ZEROLAB_TEST_ODD");
  const std::string how = variable == nullptr ? "" : variable;
  if (how == "throws") throw std::runtime_error("not today");
  if (how == "throws a number") throw 42;
  if (how == "null") return nullptr;
  if (how == "elsewhere") {
    static const auto elsewhere = std::make_unique<zerolab::PluginTable>(table);
    return elsewhere.get();
  }
  if (how == "magic") table.magic = 1;
  if (how == "size") table.struct_size = 8;
  if (how == "empty") table.num_entries = 0;
  if (how == "endless") table.num_entries = static_cast<size_t>(-1);
  if (how == "no entries") table.entries = nullptr;
  if (how == "no create") entry.create = nullptr;
  if (how == "no id") entry.id = {};
  if (how == "kind") entry.kind = static_cast<zerolab::Kind>(77);
  if (how == "other kind") entry.kind = zerolab::Kind::kModel;
  if (how == "other id") entry.id = "scheduler/even";
  return &table;
}
