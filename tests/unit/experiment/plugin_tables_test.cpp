#include "zerolab/error.h"

#include "catch.h"
#include "fake_catalogue.h"

using namespace zerolab;
using namespace zerolab::test;

namespace {

/// A sound experiment with another text for [scheduler].
std::string with_scheduler(const std::string& text) {
  std::string all = sound();
  const std::string usual = "[scheduler]\nplugin = \"ramp\"\n";
  return all.replace(all.find(usual), usual.size(), text);
}

double lr(const Experiment& e) {
  return option<double>(e, Kind::kScheduler, "lr");
}

}  // namespace

TEST_CASE("every option of the chosen plugin has a value", "[experiment]") {
  const Folder folder;
  const Experiment e = resolve(folder.write("exp.toml", sound("bucket = \"4KB\"\n")));
  CHECK(e.plugin(Kind::kScheduler).name == "ramp");
  CHECK(e.plugin(Kind::kScheduler).options.size() == 7);
  CHECK(lr(e) == 3e-4);
  CHECK(option<int64_t>(e, Kind::kModel, "width") == 4);
  CHECK(option<bool>(e, Kind::kModel, "bias") == false);
  CHECK(option<int64_t>(e, Kind::kSharding, "bucket") == 1024);  // four bytes an element
  CHECK(e.plugin(Kind::kPrecision).options.empty());
}

TEST_CASE("paths are absolute, from the file's folder; an empty one stays empty", "[experiment]") {
  const Folder folder;
  const Experiment e =
      resolve(folder.write("sub/exp.toml", sound("[scheduler.ramp]\npath = \"../t/./r.txt\"\n")));
  CHECK(option<std::string>(e, Kind::kScheduler, "path") == (folder.path() / "t/r.txt").string());
  CHECK(option<std::string>(e, Kind::kData, "path") ==
        (folder.path() / "sub/default.txt").string());
  CHECK(option<std::string>(resolve(folder.write("exp.toml", sound())), Kind::kScheduler, "path")
            .empty());
}

TEST_CASE("a table for a plugin is used only while that plugin is chosen", "[experiment]") {
  const Folder folder;
  const auto file = folder.write(
      "exp.toml",
      with_scheduler("[scheduler]\nplugin = \"ramp\"\nlr = 0.5\n"
                     "[scheduler.ramp]\nmin_lr = 0.25\n[scheduler.flat]\nlr = 0.125\n"));
  CHECK(lr(resolve(file)) == 0.5);
  CHECK(option<double>(resolve(file), Kind::kScheduler, "min_lr") == 0.25);
  CHECK(lr(resolve(file, {"scheduler.plugin=flat"})) == 0.125);
}

TEST_CASE("within one layer the more specific place wins, else the later layer", "[experiment]") {
  const Folder folder;
  const auto base = folder.write(
      "base.toml",
      with_scheduler("[scheduler]\nplugin = \"ramp\"\nlr = 0.1\n[scheduler.ramp]\nlr = 0.2\n"));
  CHECK(lr(resolve(base)) == 0.2);
  CHECK(lr(resolve(base, {"scheduler.lr=0.3"})) == 0.3);
  CHECK(lr(resolve(base, {"scheduler.ramp.lr=0.3"})) == 0.3);
  CHECK(lr(resolve(base, {"scheduler.ramp.lr=0.3", "scheduler.lr=0.4"})) == 0.3);
  CHECK(lr(resolve(base, {"scheduler.lr=0.4", "scheduler.ramp.lr=0.3"})) == 0.3);
  const auto upper = folder.write("exp.toml", "extends = \"base.toml\"\n[scheduler]\nlr = 0.5\n");
  CHECK(lr(resolve(upper)) == 0.5);
}

TEST_CASE("a table for an installed plugin is checked though another is chosen", "[experiment]") {
  const Folder folder;
  const std::string error = config_error(folder.write(
      "exp.toml", sound("[sharding.split]\ndepth = 10\ndpth = 1\nplugin = \"split\"\n")));
  const auto all = lines(error);
  REQUIRE(all.size() == 3);
  CHECK(all[0] ==
        "exp.toml:19:9: key 'sharding.split.depth': must be at least 1 and at most 9, is 10; "
        "default 1");
  CHECK(
      all[1] ==
      "exp.toml:20:1: key 'sharding.split.dpth': is no option of sharding split; nearest valid key "
      "'sharding.split.depth': an integer, at least 1, at most 9; default 1");
  CHECK(all[2] ==
        "exp.toml:21:1: key 'sharding.split.plugin': plugin is a reserved word: choose the plugin "
        "in [sharding]");
}

TEST_CASE("a table for a plugin that is not installed is passed over", "[experiment]") {
  const Folder folder;
  const Experiment e =
      resolve(folder.write("exp.toml", sound("[sharding.other]\nx = 1\ny = [[1]]\n")));
  CHECK(e.plugin(Kind::kSharding).name == "whole");
}

TEST_CASE("an option of another plugin of the kind is refused with the place where it would go",
          "[experiment]") {
  const Folder folder;
  CHECK(config_error(folder.write(
            "exp.toml", with_scheduler("[scheduler]\nplugin = \"flat\"\nmin_lr = 0.1\n"))) ==
        "exp.toml:16:1: key 'scheduler.min_lr': is no option of scheduler flat, the chosen one, "
        "but of ramp; it would go "
        "into [scheduler.ramp], where it waits until ramp is chosen");
}

TEST_CASE("swapping a plugin by one word never trips over the other's options", "[experiment]") {
  const Folder folder;
  const auto file = folder.write("exp.toml", sound("bucket = 8\nshared = 7\n"));
  SECTION("by an override") {
    const Experiment e = resolve(file, {"sharding.plugin=split"});
    CHECK(e.plugin(Kind::kSharding).name == "split");
    CHECK(option<int64_t>(e, Kind::kSharding, "shared") == 7);  // both know it
    CHECK(e.plugin(Kind::kSharding).options.count("bucket") == 0);
  }
  SECTION("by a file that extends the first") {
    const auto upper = folder.write(
        "upper.toml", "extends = \"exp.toml\"\n[sharding]\nplugin = \"split\"\ndepth = 3\n");
    CHECK(option<int64_t>(resolve(upper), Kind::kSharding, "depth") == 3);
    SECTION("and back") {
      const Experiment e = resolve(upper, {"sharding.plugin=whole"});
      CHECK(option<int64_t>(e, Kind::kSharding, "bucket") == 8);
      CHECK(e.plugin(Kind::kSharding).options.count("depth") == 0);
    }
  }
  SECTION("but a wrong value is still wrong") {
    CHECK(has(
        config_error(folder.write("exp.toml", sound("bucket = -1\n")), {"sharding.plugin=split"}),
        "exp.toml:18:10: key 'sharding.bucket': must be at least 1, is -1"));
  }
  SECTION("nor does a mistyped key pass, or an option said together with the new choice") {
    CHECK(
        has(config_error(folder.write("exp.toml", sound("buckt = 1\n")), {"sharding.plugin=split"}),
            "exp.toml:18:1: key 'sharding.buckt': is no option of sharding split"));
    CHECK(has(config_error(file, {"sharding.plugin=split", "sharding.bucket=9"}),
              "override 'sharding.bucket=9': key 'sharding.bucket': is no option of sharding "
              "split, the chosen one, but of whole"));
  }
}

TEST_CASE("an unknown option is refused with the nearest one, its range and its default",
          "[experiment]") {
  const Folder folder;
  const auto error = [&](const std::string& line) {
    return config_error(
        folder.write("exp.toml", with_scheduler("[scheduler]\nplugin = \"ramp\"\n" + line)));
  };
  CHECK(error("warmup_step = 3\n") ==
        "exp.toml:16:1: key 'scheduler.warmup_step': is no option of scheduler ramp; nearest valid "
        "key "
        "'scheduler.warmup_steps': an integer, at least 0, in steps; default 100");
  CHECK(error("colour = 3\n") ==
        "exp.toml:16:1: key 'scheduler.colour': is no option of scheduler ramp; valid keys: lr, "
        "min_lr, warmup_steps, "
        "betas, mode, path, tags");
}

TEST_CASE("a key in the wrong table is told its right place", "[experiment]") {
  const Folder folder;
  const auto error = [&](const std::string& key) {
    return config_error(folder.write("exp.toml", sound()), {key});
  };
  CHECK(has(error("optimizer.lr=1"),
            "key 'optimizer.lr': is no option of optimizer plain; it belongs in [scheduler]"));
  CHECK(has(error("scheduler.weight_decay=1"), "it belongs in [optimizer]"));
  CHECK(has(error("data.sequence_length=1"), "it belongs in [batch]"));
  CHECK(has(error("batch.seed=1"),
            "key 'batch.seed': is no key of [batch]; it belongs to the top level"));
  CHECK(has(error("micro_batch_size=1"), "is no key of the top level; it belongs in [batch]"));
  CHECK(has(error("checkpoint.width=1"), "it belongs in [model]"));
}

TEST_CASE("a plugin without options takes none", "[experiment]") {
  const Folder folder;
  CHECK(config_error(folder.write("exp.toml", sound()), {"precision.bits=8"}) ==
        "override 'precision.bits=8': key 'precision.bits': is no option of precision plain; it "
        "takes no options");
}

TEST_CASE("wrong values of options are told with what is allowed", "[experiment]") {
  const Folder folder;
  const auto error = [&](const std::string& line) {
    return config_error(
        folder.write("exp.toml", with_scheduler("[scheduler]\nplugin = \"ramp\"\n" + line)));
  };
  CHECK(error("lr = 0.0\n") ==
        "exp.toml:16:6: key 'scheduler.lr': must be above 0.0, is 0.0; default 3e-04");
  CHECK(error("warmup_steps = \"many\"\n") ==
        "exp.toml:16:16: key 'scheduler.warmup_steps': must be an integer, is a string (\"many\"); "
        "default 100");
  CHECK(error("mode = \"cubic\"\n") ==
        "exp.toml:16:8: key 'scheduler.mode': must be \"linear\" or \"square\", is \"cubic\"; "
        "default \"linear\"");
  CHECK(has(error("betas = [0.9]\n"),
            "key 'scheduler.betas': must have 2 entries, has 1; default [0.9, 0.95]"));
  CHECK(has(error("betas = [0.9, 1.0]\n"), "key 'scheduler.betas': each entry must be "));
  CHECK(has(error("[scheduler.lr]\nx = 1\n"), "key 'scheduler.lr': must be a number, is a table"));
}

TEST_CASE(
    "what options contradict each other is told at the option, or at the table if it was not given",
    "[experiment]") {
  const Folder folder;
  CHECK(config_error(folder.write(
            "exp.toml",
            with_scheduler("[scheduler]\nplugin = \"ramp\"\n[scheduler.ramp]\nmin_lr = 1\n"))) ==
        "exp.toml:17:10: key 'scheduler.ramp.min_lr': must not exceed lr");
  CHECK(config_error(folder.write("exp.toml", sound("shared = 2000000\n"))) ==
        "exp.toml:16:2: key 'sharding.bucket': must not be below shared");
  CHECK(config_error(folder.write("exp.toml", sound()), {"scheduler.min_lr=1"}) ==
        "override 'scheduler.min_lr=1': key 'scheduler.min_lr': must not exceed lr");
}

TEST_CASE("a required option that is missing is told at its table", "[experiment]") {
  const Folder folder;
  std::string text = sound();
  text.erase(text.find("width = 4\n"), 10);
  CHECK(config_error(folder.write("exp.toml", text)) ==
        "exp.toml:5:2: key 'model.width': is missing: channels (an integer, at least 1; required)");
}

TEST_CASE("a kind without a choice is told what is installed", "[experiment]") {
  const Folder folder;
  const auto error = [&](const std::string& text) {
    return config_error(folder.write("exp.toml", with_scheduler(text)));
  };
  CHECK(error("") ==
        "exp.toml:1:1: key 'scheduler.plugin': is missing: add [scheduler] with plugin = \"NAME\"; "
        "installed: flat, ramp");
  CHECK(error("[scheduler]\nlr = 1\n") ==
        "exp.toml:14:2: key 'scheduler.plugin': is missing: add plugin = \"NAME\"; installed: "
        "flat, ramp");
  CHECK(error("[scheduler]\nplugin = 3\n") ==
        "exp.toml:15:10: key 'scheduler.plugin': must be a string, is an integer; installed: flat, "
        "ramp");
  CHECK(config_error(folder.write("exp.toml", sound()), {"scheduler=flat"}) ==
        "override 'scheduler=flat': key 'scheduler': must be a table with plugin = \"NAME\", is a "
        "string; installed: flat, ramp");
}

TEST_CASE("a missing plugin is a plugin error in the catalogue's words", "[experiment]") {
  const Folder folder;
  const auto file = folder.write("exp.toml", sound("bucket = 3\nanything = 4\n"));
  try {
    resolve(file, {"sharding.plugin=whle", "scheduler.plugin=none"});
    FAIL("not refused");
  } catch (const PluginError& error) {
    CHECK(error.exit_code() == ExitCode::kPlugin);
    CHECK(std::string(error.what()) ==
          "override 'sharding.plugin=whle': key 'sharding.plugin': no plugin sharding/whle in "
          "/nowhere\n"
          "override 'scheduler.plugin=none': key 'scheduler.plugin': no plugin scheduler/none in "
          "/nowhere");
  }
  // Beside other mistakes it is one of them.
  CHECK(lines(config_error(file, {"sharding.plugin=whle", "seed=-1"})).size() == 2);
}

TEST_CASE("a refused plugin is a plugin error if it is chosen, and no matter if not",
          "[experiment]") {
  const Folder folder;
  const auto file = folder.write("exp.toml", sound("[sharding.split]\ndepth = 100\n"));
  FakeCatalogue catalogue;
  catalogue.refuse(Kind::kSharding, "split");
  CHECK(ExperimentFile::load(file, {}).resolve(catalogue, 1).steps == 10);
  try {
    ExperimentFile::load(file, {"sharding.plugin=split"}).resolve(catalogue, 1);
    FAIL("not refused");
  } catch (const PluginError& error) {
    CHECK(has(error.what(), "key 'sharding.plugin': refused: built for another world"));
  }
}
