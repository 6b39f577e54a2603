#include "experiment/host_keys.h"

#include "zerolab/error.h"

#include "catch.h"
#include "fake_catalogue.h"

using namespace zerolab;
using namespace zerolab::test;

TEST_CASE("the host's keys reach the experiment", "[experiment]") {
  const Folder folder;
  const Experiment e = resolve(folder.write(
      "exp.toml",
      "name = \"a.b_c-1\"\nseed = 7\nsteps = 3\ngradient_clipping = 0.5\ndevice = "
      "\"cuda:1\"\nthreads = 2\n"
      "[evaluation]\nevery = 5\nnum_samples = 6\n[checkpoint]\nevery = 4\nkeep_last = 3\n"
      "[debug]\ncheck_collectives = false\n" +
          sound().substr(std::string("steps = 10\n").size())));
  CHECK(e.name == "a.b_c-1");
  CHECK(e.seed == 7);
  CHECK(e.steps == 3);
  CHECK(e.gradient_clipping == 0.5);
  CHECK(e.device == "cuda:1");
  CHECK(e.threads == 2);
  CHECK_FALSE(e.check_collectives);
  CHECK(e.batch.sequence_length == 8);
  CHECK(e.batch.reduce_every == "micro_batch");
  CHECK(e.evaluation.every == 5);
  CHECK(e.evaluation.num_samples == 6);
  CHECK(e.checkpoint.every == 4);
  CHECK(e.checkpoint.keep_last == 3);
  CHECK(e.file == folder.path() / "exp.toml");
}

TEST_CASE("weights to begin with are found from the file that names them", "[experiment]") {
  const Folder folder;
  const Experiment e = resolve(folder.write(
      "exp.toml", "init_from = \"../run@best\"\nfreeze = [\"wte.*\", \"b?\"]\n" + sound()));
  CHECK(e.init_from == folder.path().parent_path() / "run@best");
  CHECK(e.freeze == std::vector<std::string>{"wte.*", "b?"});
  CHECK(e.resolved_toml.find("init_from = \"" + e.init_from + "\"") != std::string::npos);
  CHECK(resolve(folder.write("exp.toml", sound())).init_from.empty());
}

TEST_CASE("an empty pattern to freeze is refused", "[experiment]") {
  const Folder folder;
  CHECK(config_error(folder.write("exp.toml", "freeze = [\"a\", \"\"]\n" + sound())) ==
        "exp.toml:1:10: key 'freeze': has an empty pattern, which no parameter's name matches");
}

TEST_CASE("what is not said has the documented default", "[experiment]") {
  const Folder folder;
  const Experiment e = resolve(folder.write("exp.toml", sound()));
  const Experiment defaults;
  CHECK(e.name == "exp");
  CHECK(e.seed == defaults.seed);
  CHECK(e.gradient_clipping == 0);
  CHECK(e.device == "cpu");
  CHECK(e.threads == 0);
  CHECK(e.check_collectives);
  CHECK(e.evaluation.every == 0);
  CHECK(e.evaluation.num_samples == 0);
  CHECK(e.checkpoint.every == 0);
  CHECK(e.checkpoint.keep_last == 2);
}

TEST_CASE("host keys out of range are refused with the range and the default", "[experiment]") {
  const Folder folder;
  const auto error = [&](const std::string& top) {
    return config_error(
        folder.write("exp.toml", top + sound().substr(std::string("steps = 10\n").size())));
  };
  CHECK(error("steps = 0\n") == "exp.toml:1:9: key 'steps': must be at least 1, is 0; required");
  CHECK(error("steps = 1\nseed = -1\n") ==
        "exp.toml:2:8: key 'seed': must be at least 0, is -1; default 1337");
  CHECK(error("steps = 1\nthreads = -1\n") ==
        "exp.toml:2:11: key 'threads': must be at least 0 and at most 1024, is -1; default 0");
  CHECK(error("steps = 1\ngradient_clipping = -0.1\n") ==
        "exp.toml:2:21: key 'gradient_clipping': must be at least 0.0, is -0.1; default 0.0");
  CHECK(error("steps = 1\n[checkpoint]\nkeep_last = 0\n") ==
        "exp.toml:3:13: key 'checkpoint.keep_last': must be at least 1, is 0; default 2");
}

TEST_CASE("a device is cpu, cuda or cuda with a number", "[experiment]") {
  const Folder folder;
  for (const char* device : {"cpu", "cuda", "cuda:0", "cuda:12"}) {
    CHECK(resolve(folder.write("exp.toml", sound()), {std::string("device=") + device}).device ==
          device);
  }
  for (const char* device : {"gpu", "cuda:", "cuda:x", "cuda:-1", "CPU", "cuda:1000"}) {
    const std::string error =
        config_error(folder.write("exp.toml", sound()), {std::string("device=") + device});
    CHECK(error == std::string("override 'device=") + device +
                       "': key 'device': must be \"cpu\", \"cuda\" or \"cuda:N\" with a device "
                       "number N, is \"" +
                       device + "\"; default \"cpu\"");
  }
}

TEST_CASE("a name is made for a folder", "[experiment]") {
  const Folder folder;
  const auto file = folder.write("exp.toml", sound());
  for (const char* name : {"\"a b\"", "\"../up\"", "\"\"", "\"caf\u00e9\""}) {
    CHECK(has(config_error(file, {std::string("name=") + name}),
              "must be made of letters, digits, '.', '_' and '-', is "));
  }
  CHECK(has(config_error(file, {"name=" + std::string(201, 'n')}),
            "must have at most 200 characters, has 201"));
  CHECK(config_error(folder.write("my exp.toml", sound())) ==
        "my exp.toml:1:1: key 'name': is missing, and the file's name 'my exp' cannot stand in: it "
        "has more than "
        "letters, digits, '.', '_' and '-', or is too long; add name = \"NAME\"");
  CHECK(resolve(folder.write("my exp.toml", sound("", "name = \"mine\"\n"))).name == "mine");
}

TEST_CASE("the host's folders of plugins are absolute, from the file's folder", "[experiment]") {
  const Folder folder;
  const auto file = folder.write("sub/exp.toml",
                                 sound("", "plugin_path = [\"plugins\", \"../more\", \"/abs\"]\n"));
  const auto path = [](const std::filesystem::path& f, const std::vector<std::string>& overrides) {
    return ExperimentFile::load(f, overrides).plugin_path();
  };
  CHECK(path(file, {}) == std::vector<std::filesystem::path>{folder.path() / "sub/plugins",
                                                             folder.path() / "more", "/abs"});
  CHECK(path(file, {"plugin_path=[\"mine\"]"}) ==
        std::vector<std::filesystem::path>{folder.path() / "cwd/mine"});
  CHECK(path(file, {"plugin_path=mine"}) ==
        std::vector<std::filesystem::path>{folder.path() / "cwd/mine"});
  CHECK(path(folder.write("exp.toml", sound()), {}).empty());
  CHECK(has(config_error(file, {"plugin_path=3"}), "must be a list of strings, is an integer"));
}

TEST_CASE("a run of no ranks is refused", "[experiment]") {
  const Folder folder;
  CHECK(config_error(folder.write("exp.toml", sound()), {}, 0) ==
        "a run needs at least 1 rank, not 0");
}

TEST_CASE("help lists every host key with range, unit and default", "[experiment]") {
  const std::string help = describe_host_keys();
  for (const HostTable& table : host_tables()) {
    for (const OptionField& field : table.schema.fields()) {
      CHECK(has("\n" + help, "\n" + field.name + "  # " + field.doc + " ("));
    }
  }
  CHECK(has(help,
            "steps  # optimizer steps of the run (an integer, at least 1, in steps; required)"));
  CHECK(has(help, "[batch]\n"));
  CHECK(has(help,
            "(an integer, at least 1, at most 16777216, in sequences; follows from other keys "
            "if left out)"));
  CHECK(has(help, "one of \"micro_batch\", \"step\"; default \"micro_batch\""));
}
