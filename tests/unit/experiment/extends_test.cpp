#include "zerolab/error.h"

#include "catch.h"
#include "fake_catalogue.h"

using namespace zerolab;
using namespace zerolab::test;

TEST_CASE("an experiment lies over its bases, later bases over earlier ones, key by key",
          "[experiment]") {
  const Folder folder;
  folder.write("a.toml", sound("bucket = 50\nshared = 5\n[evaluation]\nevery = 1\n"));
  folder.write("b.toml", "seed = 2\nthreads = 2\n[sharding]\nshared = 6\n");
  const Experiment e =
      resolve(folder.write("exp.toml", "extends = [\"a.toml\", \"b.toml\"]\nthreads = 3\n"));
  CHECK(e.name == "exp");
  CHECK(e.steps == 10);                                        // a
  CHECK(e.evaluation.every == 1);                              // a
  CHECK(e.seed == 2);                                          // b
  CHECK(e.threads == 3);                                       // the experiment over b
  CHECK(option<int64_t>(e, Kind::kSharding, "bucket") == 50);  // a, the table merged
  CHECK(option<int64_t>(e, Kind::kSharding, "shared") == 6);   // b over a
}

TEST_CASE("lists of a base are replaced, not joined", "[experiment]") {
  const Folder folder;
  folder.write("a.toml", sound("[scheduler.ramp]\ntags = [\"x\", \"y\"]\n"));
  const Experiment e =
      resolve(folder.write("exp.toml", "extends = \"a.toml\"\n[scheduler.ramp]\ntags = [\"z\"]\n"));
  CHECK(option<std::vector<std::string>>(e, Kind::kScheduler, "tags") ==
        std::vector<std::string>{"z"});
}

TEST_CASE("bases have bases, and every file's paths start at its own folder", "[experiment]") {
  const Folder folder;
  std::string text = sound();
  text.replace(text.find("[data]\nplugin = \"plain\"\n"), 24,
               "[data]\nplugin = \"plain\"\npath = \"corpus.txt\"\n");
  folder.write("deep/down/a.toml", text);
  folder.write("deep/b.toml", "extends = \"down/a.toml\"\nseed = 5\n");
  const Experiment e = resolve(folder.write("top/exp.toml", "extends = \"../deep/b.toml\"\n"));
  CHECK(e.seed == 5);
  CHECK(option<std::string>(e, Kind::kData, "path") ==
        (folder.path() / "deep/down/corpus.txt").string());
}

TEST_CASE("one base may be reached twice", "[experiment]") {
  const Folder folder;
  folder.write("a.toml", sound());
  folder.write("b.toml", "extends = \"a.toml\"\nseed = 4\n");
  CHECK(resolve(folder.write("exp.toml", "extends = [\"a.toml\", \"b.toml\"]\n")).seed == 4);
}

TEST_CASE("bases that go in a circle are refused with the circle", "[experiment]") {
  const Folder folder;
  folder.write("a.toml", "extends = \"b.toml\"\n");
  folder.write("b.toml", "seed = 1\nextends = [\"exp.toml\"]\n");
  CHECK(config_error(folder.write("exp.toml", "extends = \"a.toml\"\n")) ==
        "b.toml:2:11: key 'extends': goes in a circle: exp.toml -> a.toml -> b.toml -> exp.toml");
  CHECK(config_error(folder.write("self.toml", "extends = \"./self.toml\"\n")) ==
        "self.toml:1:11: key 'extends': goes in a circle: self.toml -> self.toml");
}

TEST_CASE("what is wrong with bases is said at extends, all at once", "[experiment]") {
  const Folder folder;
  folder.write("bad.toml", "x = \n");
  const std::string error =
      config_error(folder.write("exp.toml", "extends = [\"no.toml\", \"bad.toml\", \"\"]\n"));
  CHECK(has(error, "exp.toml:1:11: key 'extends': there is no file 'no.toml'"));
  CHECK(has(error, "bad.toml:1:"));
  CHECK(lines(error).size() == 3);
  CHECK(
      config_error(folder.write("exp.toml", "extends = 3\n")) ==
      "exp.toml:1:11: key 'extends': must be a file or a list of files, is an integer; default []");
  CHECK(config_error(folder.write("exp.toml", "extends = \"cwd\"\n")) ==
        "cwd:1:1: is a folder, not an experiment file");
}

TEST_CASE("no bases is an empty list", "[experiment]") {
  const Folder folder;
  CHECK(resolve(folder.write("exp.toml", sound("", "extends = []\n"))).steps == 10);
}

TEST_CASE("mistakes in a base are told at the base", "[experiment]") {
  const Folder folder;
  folder.write("a.toml", sound("buckt = 1\n", "sed = 1\n"));
  const std::string error =
      config_error(folder.write("exp.toml", "extends = \"a.toml\"\nsteps = -1\n"));
  const auto all = lines(error);
  REQUIRE(all.size() == 3);
  CHECK(has(all[0], "exp.toml:2:9: key 'steps'"));
  CHECK(has(all[1], "a.toml:2:1: key 'sed'"));
  CHECK(has(all[2], "a.toml:19:1: key 'sharding.buckt'"));
}
