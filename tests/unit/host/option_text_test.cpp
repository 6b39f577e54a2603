#include "host/option_text.h"

#include "catch.h"
#include "fixture.h"
#include "host/plugin_host.h"

using host_test::contains;
using zerolab::OptionField;
using zerolab::OptionType;

namespace {

const zerolab::OptionSchema& plain_schema() {
  static const auto records =
      zerolab::PluginHost::read_file(host_test::library("zerolab_scheduler_plain"));
  return zerolab::PluginHost::describe(records.front());
}

}  // namespace

TEST_CASE("a range is told in words, integers without a point") {
  OptionField field;
  field.type = OptionType::kInt;
  CHECK(zerolab::option_range(field).empty());
  field.minimum = 0;
  CHECK(zerolab::option_range(field) == "at least 0");
  field.maximum = 10;
  field.maximum_exclusive = true;
  CHECK(zerolab::option_range(field) == "at least 0 and below 10");
  field.type = OptionType::kFloat;
  field.minimum_exclusive = true;
  field.maximum_exclusive = false;
  CHECK(zerolab::option_range(field) == "above 0.0 and at most 10.0");
  field = {};
  field.type = OptionType::kString;
  field.allowed = {"a", "b"};
  CHECK(zerolab::option_range(field) == "one of \"a\", \"b\"");
}

TEST_CASE("the skeleton has every option at its default, with its meaning and limits above it") {
  const std::string text =
      zerolab::skeleton_toml(zerolab::Kind::kScheduler, "plain", plain_schema());
  CHECK(text.starts_with("[scheduler]\nplugin = \"plain\"\n"));
  CHECK(contains(text, "# learning rate\n# a number; above 0.0 and at most 1.0\nlr = 0.1\n"));
  CHECK(contains(text,
                 "# linear warmup from zero\n# to lr\n# an integer, in steps; at least "
                 "0\nwarmup_steps = 100\n"));
  CHECK(contains(text, "shape = \"flat\"\n"));
  CHECK(contains(text, "weights = [0.9, 0.95]\n"));
  CHECK(contains(text, "a size such as \"25MB\"\nbucket = 1024\n"));
  CHECK(contains(text, "# required: a string; a path, relative to this file\nfile = \"\"\n"));
  CHECK(contains(text, "loud = false\n"));
}

TEST_CASE("a pasted skeleton is a valid part of an experiment") {
  const host_test::Folder folder;
  const auto file =
      host_test::write(folder / "x.toml",
                       zerolab::skeleton_toml(zerolab::Kind::kScheduler, "plain", plain_schema()));
  CHECK_NOTHROW(zerolab::ExperimentFile::load(file, {}));
}
