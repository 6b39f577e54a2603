#include <string>
#include <vector>

#include "zerolab/error.h"

#include "catch.h"
#include "mirror_scratch.h"
#include "store/checkpoint_folder.h"
#include "store/mirror.h"
#include "train/resumption.h"

namespace zerolab {

TEST_CASE("fetch brings the newest complete checkpoint into a run that is not there") {
  const ScratchFolder scratch;
  make_run("runs/a-1");
  make_checkpoint("runs/a-1", 1, "one");
  make_checkpoint("runs/a-1", 2, "two");
  CHECK(mirror_all("mirror", "runs/a-1", {1, 2}).empty());
  write("mirror/a-1/checkpoints/step-000000003/rank-0000.h5", "no manifest");
  write("mirror/a-1/checkpoints/other/manifest.json", "no checkpoint");
  fs::rename("runs", "lost");

  CHECK(Mirror::fetch("mirror", "runs/a-1") == 2);
  auto expected = contents("lost/a-1");
  expected.erase("metrics.h5");
  std::erase_if(expected, [](const auto& file) {
    return file.first.find("step-000000001") != std::string::npos;
  });
  CHECK(contents("runs/a-1") == expected);
  CHECK(CheckpointFolder("runs/a-1").steps() == std::vector<int64_t>{2});

  CHECK(Mirror::fetch("mirror", "runs/a-1", 1) == 1);
  CHECK(CheckpointFolder("runs/a-1").steps() == std::vector<int64_t>{1, 2});
  CHECK_FALSE(Mirror::fetch("mirror", "runs/a-1", 3));
}

TEST_CASE("fetch leaves alone what a run with a complete checkpoint has") {
  const ScratchFolder scratch;
  make_run("run");
  make_checkpoint("run", 2, "two");
  CHECK(mirror_all("mirror", "run", {2}).empty());
  fs::remove_all("run/checkpoints/step-000000002");
  make_checkpoint("run", 1, "one");
  write("run/metrics.jsonl", "newer");
  fs::remove("run/environment.json");
  CHECK(Mirror::fetch("mirror", "run") == 2);
  CHECK(read_file("run/metrics.jsonl") == "newer");
  CHECK(read_file("run/environment.json") == "{}\n");
  CHECK(CheckpointFolder("run").steps() == std::vector<int64_t>{1, 2});
}

TEST_CASE("fetch replaces the small files of a run without a complete checkpoint") {
  const ScratchFolder scratch;
  make_run("run");
  make_checkpoint("run", 2, "two");
  CHECK(mirror_all("mirror", "run", {2}).empty());
  fs::remove("run/checkpoints/step-000000002/manifest.json");
  write("run/checkpoints/step-000000002/rank-0007.h5", "of a checkpoint that is none");
  write("run/metrics.jsonl", "of another life");
  CHECK(Mirror::fetch("mirror", "run") == 2);
  CHECK(read_file("run/metrics.jsonl") == "{\"step\": 1}\n");
  CHECK(contents("run/checkpoints") == contents("mirror/run/checkpoints"));
}

TEST_CASE("fetch from a mirror without this run brings nothing and makes nothing") {
  const ScratchFolder scratch;
  fs::create_directory("mirror");
  CHECK_FALSE(Mirror::fetch("mirror", "run"));
  CHECK_FALSE(Mirror::fetch("nowhere", "run"));
  CHECK_FALSE(fs::exists("run"));
}

TEST_CASE("fetch that cannot read the mirror says so and leaves no partial name") {
  const ScratchFolder scratch;
  make_run("run");
  make_checkpoint("run", 2, "two");
  CHECK(mirror_all("mirror", "run", {2}).empty());
  fs::remove_all("run");
  {
    const FakeRclone fake(
        "\"$RCLONE\" \"$@\"; code=$?; f=run/checkpoints/step-000000002.partial/rank-0000.h5; "
        "test ! -e $f || printf 2wo >$f; exit $code");
    CHECK_THROWS_AS(Mirror::fetch("mirror", "run"), StoreError);
  }
  CHECK(contents("run/checkpoints").empty());
  CHECK_FALSE(fs::exists("run/mirror.partial"));
  CHECK_THROWS_WITH(
      Mirror::fetch("nosuch:bucket", "run"),
      Contains("the mirror \"nosuch:bucket/run\" cannot be read: ") && Contains("find section"));
}

TEST_CASE("RUN@best is not fetched, because the best is not known before all are here") {
  const ScratchFolder scratch;
  make_run("run");
  for (const int64_t step : {1, 2}) make_checkpoint("run", step, std::to_string(step));
  REQUIRE(mirror_all("mirror", "run", {1, 2}).empty());
  CHECK(fetch_missing("run@best", "mirror").empty());  // here already
  fs::remove_all("run");
  CHECK_THROWS_AS(fetch_missing("run@best", "mirror"), ConfigError);
  CHECK_THROWS_WITH(fetch_missing("run@best", "mirror"),
                    Contains("--mirror: 'run@best' cannot be fetched") && Contains("step"));
  CHECK_FALSE(fs::exists("run"));
  CHECK_THAT(fetch_missing("run@1", "mirror"), Contains("step 1 "));
  CHECK_THROWS_WITH(fetch_missing("lost", "nosuch:bucket"),
                    Contains("--mirror: \"nosuch:\"") && !Contains("checkpoint.mirror"));
}

}  // namespace zerolab
