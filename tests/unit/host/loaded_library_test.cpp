#include "host/loaded_library.h"

#include <memory>

#include "zerolab/error.h"
#include "zerolab/scheduler.h"

#include "catch.h"
#include "fixture.h"

using host_test::contains;
using host_test::message_of;
using zerolab::load_plugin_table;
using zerolab::PluginError;

namespace {

/// Loads a copy of the odd plugin, whose table is wrong in the way that `how` names.
std::string refusal_of_odd(const std::string& how) {
  const host_test::Folder folder;
  const host_test::Variable variable("ZEROLAB_TEST_ODD", how);
  const auto file =
      host_test::put_copy(host_test::library("zerolab_scheduler_odd"), folder / "odd.so");
  return message_of<PluginError>([&] { load_plugin_table(file); });
}

std::string refusal(const std::filesystem::path& file) {
  return message_of<PluginError>([&] { load_plugin_table(file); });
}

}  // namespace

TEST_CASE("a plugin's table is read, and the same table comes again") {
  const auto& table = load_plugin_table(host_test::library("zerolab_scheduler_pair"));
  REQUIRE(table.num_entries == 2);
  CHECK(table.entries[0].id == "scheduler/first_of_two");
  CHECK(table.entries[1].id == "scheduler/second_of_two");
  CHECK(&load_plugin_table(host_test::library("zerolab_scheduler_pair")) == &table);
  const std::unique_ptr<zerolab::Scheduler> second(
      static_cast<zerolab::Scheduler*>(table.entries[1].create({})));
  CHECK(second->lr(0) == 2);
}

TEST_CASE("a table that makes no sense is refused, naming the file") {
  CHECK(refusal_of_odd("").empty());
  for (const char* how : {"magic", "size", "empty", "endless", "no entries"}) {
    CAPTURE(how);
    CHECK(contains(refusal_of_odd(how), "/odd.so gives a plugin table that makes no sense"));
  }
  for (const char* how : {"no create", "no id", "kind"}) {
    CAPTURE(how);
    CHECK(contains(refusal_of_odd(how), "incomplete entry number 0"));
  }
  CHECK(contains(refusal_of_odd("null"), "does not lie in it"));
  CHECK(contains(refusal_of_odd("elsewhere"), "does not lie in it"));
}

TEST_CASE("an exception of the entry symbol becomes a sentence") {
  CHECK(contains(refusal_of_odd("throws"), "not today"));
  CHECK(contains(refusal_of_odd("throws a number"), "unknown type"));
}

TEST_CASE("the entry symbol must be the file's own") {
  CHECK(contains(refusal(host_test::library("host_test_symbolless")), "no symbol zerolab_plugin"));
  CHECK(contains(refusal(host_test::library("host_test_borrower")),
                 "only that of a library it depends on"));
}

TEST_CASE("a file that is refused once is refused again") {
  CHECK(refusal(host_test::library("host_test_symbolless")) ==
        refusal(host_test::library("host_test_symbolless")));
}

TEST_CASE("a symbol that nothing provides is named as its author wrote it") {
  const std::string message = refusal(host_test::library("host_test_unresolved"));
  CHECK(contains(message, "host_test_unresolved.so cannot be loaded"));
  CHECK(contains(message, "zerolab_test::nowhere(std::"));
  CHECK(contains(message, "rebuild"));
}
