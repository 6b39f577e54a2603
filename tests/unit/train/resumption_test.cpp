#include "train/resumption.h"

#include <fstream>

#include "zerolab/error.h"

#include "catch.h"
#include "store/checkpoint_folder.h"
#include "unit/store/scratch.h"

namespace fs = std::filesystem;

using zerolab::batch_overrides;
using zerolab::candidate_steps;
using zerolab::CheckpointName;
using zerolab::parse_checkpoint_name;
using Overrides = std::vector<std::string>;

namespace {

void make_run(const fs::path& folder) {
  fs::create_directories(folder);
  std::ofstream(folder / "config.resolved.toml") << "steps = 1\n";
}

/// A checkpoint without tensors.
void save(const fs::path& run, int64_t step, double val_loss = std::nan("")) {
  zerolab::CheckpointFolder folder(run);
  folder.begin(step);
  zerolab::CheckpointManifest manifest;
  manifest.point.step = step;
  manifest.point.val_loss = val_loss;
  manifest.run = {"run", 4, 2, 24, 3, 2};
  folder.publish(manifest, {});
}

template <class Body>
std::string config_error(const Body& body) {
  try {
    body();
  } catch (const zerolab::ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

zerolab::SavedRun saved(int ranks, int64_t micro, int64_t accumulation) {
  return {"run", ranks, 1, micro * accumulation * ranks, micro, accumulation};
}

}  // namespace

TEST_CASE("RUN, RUN@step, RUN@best and RUN@newest name a checkpoint") {
  const zerolab::ScratchFolder scratch;
  make_run("runs/a-1");
  const CheckpointName newest = parse_checkpoint_name("runs/a-1");
  CHECK(newest.run == fs::current_path() / "runs/a-1");
  CHECK(newest.newest());
  CHECK(parse_checkpoint_name("runs/a-1@newest").newest());
  const CheckpointName step = parse_checkpoint_name("runs/a-1@500");
  CHECK(step.run == fs::current_path() / "runs/a-1");
  CHECK(step.step == 500);
  CHECK_FALSE(step.newest());
  const CheckpointName best = parse_checkpoint_name("runs/a-1@best");
  CHECK(best.best);
  CHECK_FALSE(best.newest());
}

TEST_CASE("a run's folder is one path however it is written") {
  const zerolab::ScratchFolder scratch;
  make_run("runs/a-1");
  const fs::path run = fs::current_path() / "runs/a-1";
  for (const std::string text : {"runs/a-1/", "./runs/a-1", "runs/../runs/a-1", "runs//a-1/"}) {
    INFO(text);
    CHECK(parse_checkpoint_name(text).run == run);
    CHECK(parse_checkpoint_name(text + "@7").run == run);
  }
  CHECK(parse_checkpoint_name(run.string() + "@7").run == run);
}

TEST_CASE("a folder whose own name has an '@' is found, with and without a step") {
  const zerolab::ScratchFolder scratch;
  make_run("a@b");
  make_run("a@7");
  CHECK(parse_checkpoint_name("a@b").newest());
  CHECK(parse_checkpoint_name("a@b@3").step == 3);
  CHECK(parse_checkpoint_name("a@7").newest());
  CHECK(parse_checkpoint_name("a@7@best").best);
}

TEST_CASE("what is no run's folder is an error that says what one is") {
  const zerolab::ScratchFolder scratch;
  fs::create_directory("empty");
  for (const char* text : {"empty", "missing", "missing@5", "@5", ""}) {
    INFO(text);
    const std::string error = config_error([&] { parse_checkpoint_name(text); });
    CHECK_THAT(error, Catch::Matchers::Contains("is no run's folder"));
    CHECK_THAT(error, Catch::Matchers::Contains("zerolab run"));
  }
}

TEST_CASE("what follows the '@' is a step or one of two words") {
  const zerolab::ScratchFolder scratch;
  make_run("run");
  for (const std::string which : {"", "-1", "5x", "last", " 5", "1e3", "999999999999999999999"}) {
    INFO(which);
    const std::string error = config_error([&] { parse_checkpoint_name("run@" + which); });
    CHECK_THAT(error, Catch::Matchers::Contains("must be a step, 'best' or 'newest'"));
  }
}

TEST_CASE("the newest checkpoints are tried first, a named one alone") {
  const zerolab::ScratchFolder scratch;
  make_run("run");
  CHECK(candidate_steps({"run"}).empty());
  save("run", 10, 2.5);
  save("run", 20, 2.25);
  save("run", 30, 2.75);
  save("run", 40);
  CHECK(candidate_steps({"run"}) == std::vector<int64_t>{40, 30, 20, 10});
  CHECK(candidate_steps({"run", 30}) == std::vector<int64_t>{30});
  CHECK(candidate_steps({"run", -1, true}) == std::vector<int64_t>{20});
}

TEST_CASE("a checkpoint that is not there is an error that lists those that are") {
  const zerolab::ScratchFolder scratch;
  make_run("run");
  CHECK_THAT(config_error([] {
               candidate_steps({"run", 5});
             }),
             Catch::Matchers::Contains("none at all"));
  save("run", 10);
  save("run", 20);
  CHECK_THAT(config_error([] {
               candidate_steps({"run", 5});
             }),
             Catch::Matchers::Contains("no checkpoint of step 5; it has those of steps 10, 20."));
  CHECK_THAT(config_error([] {
               candidate_steps({"run", -1, true});
             }),
             Catch::Matchers::Contains("no checkpoint with a validation loss"));
}

TEST_CASE("how a run was cut is read from its newest checkpoint") {
  const zerolab::ScratchFolder scratch;
  make_run("run");
  save("run", 10);
  const zerolab::SavedRun run = zerolab::saved_run({"run"});
  CHECK(run.ranks == 4);
  CHECK(run.threads_per_rank == 2);
  CHECK(run.total_batch_size == 24);
  CHECK(run.micro_batch_size == 3);
  CHECK(run.gradient_accumulation_steps == 2);
}

TEST_CASE("a run without a checkpoint was cut as its environment says") {
  const zerolab::ScratchFolder scratch;
  make_run("run");
  CHECK(zerolab::saved_run({"run"}).ranks == 1);
  std::ofstream("run/environment.json") << R"({"ranks": "3", "host": "x"})";
  CHECK(zerolab::saved_run({"run"}).ranks == 3);
  CHECK(zerolab::saved_run({"run"}).total_batch_size == 0);
}

TEST_CASE("the same ranks get the batch that was saved, whatever the configuration says by now") {
  const Overrides as_saved{"batch.micro_batch_size=3", "batch.gradient_accumulation_steps=2"};
  CHECK(batch_overrides(saved(4, 3, 2), 4, {}) == as_saved);
  CHECK(batch_overrides(saved(4, 3, 2), 4, {"steps=10", "sharding.plugin=x"}) == as_saved);
}

TEST_CASE("other ranks keep the total and the micro-batches if these divide") {
  CHECK(batch_overrides(saved(4, 3, 2), 2, {}) ==
        Overrides{"batch.micro_batch_size=3", "batch.gradient_accumulation_steps=4"});
  CHECK(batch_overrides(saved(1, 1, 12), 4, {}) ==
        Overrides{"batch.micro_batch_size=1", "batch.gradient_accumulation_steps=3"});
}

TEST_CASE("micro-batches that do not divide are cut smaller, never larger") {
  CHECK(batch_overrides(saved(2, 6, 1), 3, {}) ==
        Overrides{"batch.micro_batch_size=4", "batch.gradient_accumulation_steps=1"});
  CHECK(batch_overrides(saved(1, 8, 3), 3, {}) ==
        Overrides{"batch.micro_batch_size=8", "batch.gradient_accumulation_steps=1"});
  CHECK(batch_overrides(saved(1, 5, 6), 2, {}) ==
        Overrides{"batch.micro_batch_size=5", "batch.gradient_accumulation_steps=3"});
  CHECK(batch_overrides(saved(1, 4, 7), 2, {}) ==
        Overrides{"batch.micro_batch_size=2", "batch.gradient_accumulation_steps=7"});
}

TEST_CASE("what the user says about the batch stays, and the rest follows") {
  CHECK(batch_overrides(saved(4, 3, 2), 2, {"batch.micro_batch_size=6"}) ==
        Overrides{"batch.micro_batch_size=6", "batch.gradient_accumulation_steps=2"});
  CHECK(batch_overrides(saved(4, 3, 2), 2, {"batch.gradient_accumulation_steps=6"}) ==
        Overrides{"batch.micro_batch_size=2"});
  CHECK(batch_overrides(saved(4, 3, 2), 4, {"batch.micro_batch_size=6"}) ==
        Overrides{"batch.micro_batch_size=6", "batch.gradient_accumulation_steps=1"});
  CHECK(batch_overrides(saved(4, 3, 2), 2, {"batch.total_batch_size=48"}) ==
        Overrides{"batch.micro_batch_size=3", "batch.gradient_accumulation_steps=8"});
  CHECK(batch_overrides(saved(4, 3, 2), 2,
                        {"batch.micro_batch_size=4", "batch.gradient_accumulation_steps=3"})
            .empty());
}

TEST_CASE("a total that does not divide over the ranks is refused") {
  const std::string error = config_error([] { batch_overrides(saved(2, 5, 2), 3, {}); });
  CHECK_THAT(error, Catch::Matchers::Contains("total_batch_size 20 does not divide over 3 ranks"));
  CHECK_THAT(error, Catch::Matchers::Contains("fork"));
}
