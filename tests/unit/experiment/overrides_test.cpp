#include "zerolab/error.h"

#include "catch.h"
#include "fake_catalogue.h"

using namespace zerolab;
using namespace zerolab::test;

TEST_CASE("an override wins over the file, the last one over the others", "[experiment]") {
  const Folder folder;
  const auto file = folder.write("exp.toml", sound("", "seed = 1\n"));
  CHECK(resolve(file, {"seed=2"}).seed == 2);
  CHECK(resolve(file, {"seed=2", "seed=3"}).seed == 3);
  CHECK(resolve(file, {"evaluation.every=4"}).evaluation.every == 4);
  CHECK(resolve(file, {"evaluation={ every = 4 }"}).evaluation.every == 4);
}

TEST_CASE("the value of an override is TOML, or else a string", "[experiment]") {
  const Folder folder;
  const auto file = folder.write("exp.toml", sound());
  const auto lr = [&](const std::string& v) {
    return option<double>(resolve(file, {"scheduler.lr=" + v}), Kind::kScheduler, "lr");
  };
  const auto tags = [&](const std::string& v) {
    return option<std::vector<std::string>>(resolve(file, {"scheduler.tags=" + v}),
                                            Kind::kScheduler, "tags");
  };
  const auto path = [&](const std::string& v) {
    return option<std::string>(resolve(file, {"scheduler.path=" + v}), Kind::kScheduler, "path");
  };
  CHECK(lr("3e-4") == 3e-4);
  CHECK(lr("1_0") == 10.0);
  CHECK(tags("[\"a=b\", 'c']") == std::vector<std::string>{"a=b", "c"});
  CHECK(resolve(file, {"debug.check_collectives=false"}).check_collectives == false);
  CHECK(resolve(file, {"name=zero-x"}).name == "zero-x");
  CHECK(resolve(file, {"name=\"quoted\""}).name == "quoted");
  CHECK(path("/a b/c=d.txt") == "/a b/c=d.txt");  // split at the first '='
  CHECK(path("/a#b") == "/a#b");
  CHECK(path("/a,b") == "/a,b");
  CHECK(path("").empty());
}

TEST_CASE("no text after a value slips in as more TOML", "[experiment]") {
  const Folder folder;
  const auto file = folder.write("exp.toml", sound());
  CHECK(has(config_error(file, {"seed=1 # two"}), "must be an integer, is a string (\"1 # two\")"));
  CHECK(has(config_error(file, {"seed=1\nsteps = 99"}), "must be an integer, is a string"));
  CHECK(has(config_error(file, {"seed=1, 2"}), "must be an integer, is a string (\"1, 2\")"));
  CHECK(has(config_error(file, {"seed=1,"}), "must be an integer, is a string (\"1,\")"));
  CHECK(lines(config_error(file, {"seed=1\nsteps = 99"})).size() == 1);
}

TEST_CASE("paths in overrides start at the current folder", "[experiment]") {
  const Folder folder;
  const auto file = folder.write("sub/exp.toml", sound());
  CHECK(option<std::string>(resolve(file, {"data.path=../x/y.txt"}), Kind::kData, "path") ==
        (folder.path() / "x/y.txt").string());
}

TEST_CASE("an override that cannot be read is told as a whole", "[experiment]") {
  const Folder folder;
  const auto file = folder.write("exp.toml", sound());
  const std::string usage = "must be dotted.key=VALUE, such as batch.micro_batch_size=4";
  for (const char* text : {"seed", "=3", ".seed=3", "a..b=3", "a b=3", ""}) {
    CHECK(config_error(file, {text}) == std::string("override '") + text + "': " + usage);
  }
  CHECK(has(config_error(file, {"scheduler.betas=[0.9, 0.95"}),
            "override 'scheduler.betas=[0.9, 0.95': key 'scheduler.betas': not valid TOML: "));
  CHECK(
      config_error(file, {"extends=a.toml"}) ==
      "override 'extends=a.toml': key 'extends': is for files only: say it in the experiment file");
  CHECK(lines(config_error(file, {"seed", "=3", "name=\"x"})).size() == 3);
}

TEST_CASE("mistakes in overrides carry the override, not a line of the file", "[experiment]") {
  const Folder folder;
  const auto file = folder.write("exp.toml", sound());
  CHECK(config_error(file, {"sed=3"}) ==
        "override 'sed=3': key 'sed': is no key of the top level; nearest valid key 'seed': an "
        "integer, at least 0; default 1337");
  CHECK(config_error(file, {"steps=0"}) ==
        "override 'steps=0': key 'steps': must be at least 1, is 0; required");
  CHECK(config_error(file, {"steps.x=0"}) ==
        "override 'steps.x=0': key 'steps': must be an integer, is a table; required");
}
