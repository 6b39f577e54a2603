#include "zerolab/error.h"

#include "catch.h"
#include "fake_catalogue.h"

using namespace zerolab;
using namespace zerolab::test;

TEST_CASE("all mistakes of an experiment are told at once, in the order of the file",
          "[experiment]") {
  const Folder folder;
  const auto file = folder.write("exp.toml",
                                 "stps = 10\n"         // 1: unknown
                                 "seed = -1\n"         // 2: out of range
                                 "device = \"tpu\"\n"  // 3: not a device; seed is wrong already
                                 "[batch]\n"           // 4
                                 "sequence_length = \"long\"\n"  // 5: wrong type
                                 "micro_batch_size = 2\n"        //
                                 "[modl]\n"                      // 7: unknown table
                                 "plugin = \"plain\"\n"          //
                                 "[data]\n"                      //
                                 "plugin = \"plain\"\n"          //
                                 "paths = \"x\"\n"               // 11: unknown
                                 "[optimizer]\n"                 //
                                 "plugin = \"plain\"\n"          //
                                 "weight_decay = -1\n"           // 14: out of range
                                 "[precision]\n"                 //
                                 "plugin = \"plain\"\n"          //
                                 "[scheduler]\n"                 //
                                 "plugin = \"flat\"\n"           //
                                 "warmup_steps = 1\n"            // 19: of another plugin
                                 "[sharding]\n"                  //
                                 "plugin = \"whole\"\n");
  const auto all = lines(config_error(file, {"evaluation.evry=3"}));
  const std::vector<std::string> begins = {
      "exp.toml:1:1: key 'model.plugin': is missing",
      "exp.toml:1:1: key 'stps': is no key of the top level; nearest valid key 'steps'",
      "exp.toml:1:1: key 'steps': is missing",
      "exp.toml:2:8: key 'seed': must be at least 0, is -1",
      "exp.toml:5:19: key 'batch.sequence_length': must be an integer, is a string",
      "exp.toml:7:2: key 'modl': is no key of the top level; nearest valid key 'model': a table",
      "exp.toml:11:1: key 'data.paths': is no option of data plain",
      "exp.toml:14:16: key 'optimizer.weight_decay': must be at least 0.0, is -1",
      "exp.toml:19:1: key 'scheduler.warmup_steps': is no option of scheduler flat",
      "override 'evaluation.evry=3': key 'evaluation.evry': is no key of [evaluation]"};
  REQUIRE(all.size() == begins.size());
  for (size_t i = 0; i < all.size(); ++i) CHECK(has(all[i].substr(0, begins[i].size()), begins[i]));
}

TEST_CASE("mistakes are configuration errors with exit code 2", "[experiment]") {
  const Folder folder;
  try {
    resolve(folder.write("exp.toml", sound()), {"steps=0"});
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK(error.exit_code() == ExitCode::kConfiguration);
  }
}

TEST_CASE("one mistake is one line, whatever the user typed", "[experiment]") {
  const Folder folder;
  const auto file = folder.write("exp.toml", sound("", "\"a\\nb\\u001b\" = 1\n"));
  CHECK(has(config_error(file), "exp.toml:2:1: key 'a\\nb\\x1B': is no key of the top level"));
  CHECK(lines(config_error(folder.write("exp.toml", sound()), {"a\nb=1\n"})).size() == 1);
}

TEST_CASE("a far-off key is told the valid ones", "[experiment]") {
  const Folder folder;
  CHECK(config_error(folder.write("exp.toml", sound()), {"zzz=1"}) ==
        "override 'zzz=1': key 'zzz': is no key of the top level; valid keys: name, seed, steps, "
        "gradient_clipping, device, "
        "threads, init_from, freeze, extends, plugin_path, batch, memory, evaluation, checkpoint, "
        "guard, distributed, "
        "debug, model, data, "
        "optimizer, sharding, precision, "
        "scheduler");
}

TEST_CASE("a kind's table loads the same twice", "[experiment]") {
  const Folder folder;
  FakeCatalogue catalogue;
  const ExperimentFile file = ExperimentFile::load(folder.write("exp.toml", sound()), {});
  const Experiment one = file.resolve(catalogue, 1), two = file.resolve(catalogue, 2);
  CHECK(one.batch.total_batch_size == 2);
  CHECK(two.batch.total_batch_size == 4);
  CHECK(one.plugin(Kind::kModel).options == two.plugin(Kind::kModel).options);
}
