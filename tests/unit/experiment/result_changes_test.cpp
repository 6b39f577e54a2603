#include "experiment/result_changes.h"

#include "catch.h"
#include "fake_catalogue.h"

using namespace zerolab::test;
using zerolab::ExperimentChanges;
using Phrases = std::vector<std::string>;

namespace {

/// What changes between the sound experiment and itself with overrides.
ExperimentChanges changes(const std::vector<std::string>& overrides,
                          const std::vector<std::string>& before = {}, int ranks_after = 1) {
  const Folder folder;
  const auto file = folder.write("exp.toml", sound());
  FakeCatalogue catalogue;
  return zerolab::compare_experiments(resolve(file, before), resolve(file, overrides, ranks_after),
                                      catalogue);
}

}  // namespace

TEST_CASE("an experiment does not differ from itself") {
  CHECK(changes({}).results.empty());
  CHECK(changes({}).paths.empty());
}

TEST_CASE("a value that changes results is named with what it is and was") {
  CHECK(changes({"scheduler.lr=0.25"}, {"scheduler.lr=0.5"}).results ==
        Phrases{"scheduler.lr is 0.25, was 0.5"});
  CHECK(changes({"seed=7"}).results == Phrases{"seed is 7, was 1337"});
  CHECK(changes({"model.bias=true"}).results == Phrases{"model.bias is true, was false"});
  CHECK(changes({"scheduler.mode=square"}).results ==
        Phrases{"scheduler.mode is \"square\", was \"linear\""});
  CHECK(changes({"scheduler.betas=[0.8, 0.9]"}).results ==
        Phrases{"scheduler.betas is [0.8, 0.9], was [0.9, 0.95]"});
}

TEST_CASE("all values that change results are named, the host's first") {
  const ExperimentChanges found =
      changes({"optimizer.weight_decay=0.0", "steps=20", "model.width=8", "guard.spike=stop",
               "gradient_clipping=1.0", "batch.sequence_length=16"});
  CHECK(found.results == Phrases{"steps is 20, was 10", "gradient_clipping is 1.0, was 0.0",
                                 "batch.sequence_length is 16, was 8",
                                 "guard.spike is \"stop\", was \"off\"", "model.width is 8, was 4",
                                 "optimizer.weight_decay is 0.0, was 0.1"});
}

TEST_CASE("how a run is watched and saved may change") {
  const ExperimentChanges found =
      changes({"name=other", "evaluation.every=5", "evaluation.num_samples=3", "checkpoint.every=2",
               "checkpoint.async=true", "checkpoint.keep_last=7", "checkpoint.on_error=continue",
               "memory.activation_checkpointing=true", "distributed.stall_timeout_s=60"});
  CHECK(found.results.empty());
  CHECK(found.paths.empty());
}

TEST_CASE("the same total may be cut into other micro-batches and over other ranks") {
  CHECK(
      changes({"batch.micro_batch_size=1", "batch.gradient_accumulation_steps=2"}).results.empty());
  CHECK(changes({"batch.micro_batch_size=1"}, {}, 2).results.empty());
}

TEST_CASE("another total is another training") {
  CHECK(changes({"batch.micro_batch_size=4"}).results ==
        Phrases{"batch.total_batch_size is 4, was 2"});
  CHECK(changes({}, {}, 2).results == Phrases{"batch.total_batch_size is 4, was 2"});
}

TEST_CASE("when gradients are summed may not change") {
  CHECK(changes({"batch.reduce_every=step"}).results ==
        Phrases{"batch.reduce_every is \"step\", was \"micro_batch\""});
}

TEST_CASE("another sharding strategy keeps results, except for options that both know") {
  CHECK(
      changes({"sharding.plugin=split", "sharding.shared=1", "sharding.depth=3"}).results.empty());
  CHECK(changes({"sharding.plugin=split"}).results == Phrases{"sharding.shared is 2, was 1"});
  CHECK(changes({"sharding.bucket=64"}).results == Phrases{"sharding.bucket is 64, was 1048576"});
}

TEST_CASE("another plugin of any other kind is named, and its options are not") {
  CHECK(changes({"scheduler.plugin=flat", "scheduler.lr=0.5"}).results ==
        Phrases{"scheduler.plugin is \"flat\", was \"ramp\""});
}

TEST_CASE("a path that moved is told apart: what it holds is the user's word") {
  const Folder folder;
  const auto file = folder.write("exp.toml", sound());
  FakeCatalogue catalogue;
  const auto found = zerolab::compare_experiments(
      resolve(file), resolve(file, {"data.path=/elsewhere/text.txt"}), catalogue);
  CHECK(found.results.empty());
  REQUIRE(found.paths.size() == 1);
  CHECK(has(found.paths.front(), "data.path is \"/elsewhere/text.txt\", was "));
  CHECK(has(found.paths.front(), "default.txt"));
}

TEST_CASE("a path that is given for the first time, or no longer, has not moved") {
  CHECK(changes({"init_from=/w"}).results == Phrases{"init_from is \"/w\", was \"\""});
  CHECK(changes({}, {"init_from=/w"}).results == Phrases{"init_from is \"\", was \"/w\""});
  CHECK(changes({"init_from=/v"}, {"init_from=/w"}).paths ==
        Phrases{"init_from is \"/v\", was \"/w\""});
}

TEST_CASE("a list of paths with one more or fewer has not moved") {
  CHECK(changes({"data.parts=[\"/a\", \"/b\"]"}, {"data.parts=[\"/a\"]"}).results ==
        Phrases{"data.parts is [\"/a\", \"/b\"], was [\"/a\"]"});
  CHECK(changes({"data.parts=[\"/a\"]"}).results == Phrases{"data.parts is [\"/a\"], was []"});
  CHECK(changes({"data.parts=[\"/b\"]"}, {"data.parts=[\"/a\"]"}).results.empty());
}

TEST_CASE("what is frozen may not change") {
  CHECK(changes({"freeze=[\"a*\"]"}).results == Phrases{"freeze is [\"a*\"], was []"});
}
