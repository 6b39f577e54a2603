#include "store/mirror.h"

#include <csignal>
#include <string>

#include "zerolab/error.h"

#include "catch.h"
#include "mirror_scratch.h"
#include "store/rclone.h"

namespace zerolab {

TEST_CASE("a remote's root is what stands before its path, with its options") {
  CHECK(remote_root("s3:bucket/path") == "s3:");
  CHECK(remote_root("s3:") == "s3:");
  CHECK(remote_root(":s3,endpoint=\"http://a:1/\",region=x:bucket") ==
        ":s3,endpoint=\"http://a:1/\",region=x:");
  CHECK(remote_root("/data/a:b").empty());
  CHECK(remote_root("folder").empty());
  CHECK(join_remote("s3:", "run") == "s3:run");
  CHECK(join_remote("s3:bucket", "run") == "s3:bucket/run");
  CHECK(join_remote("/data/", "run") == "/data/run");
}

TEST_CASE("a checkpoint and the run's small files are in the mirror after finish") {
  const ScratchFolder scratch;
  make_run("runs/a-1");
  const fs::path checkpoint = make_checkpoint("runs/a-1", 500, "first");
  CHECK(mirror_all("mirror", "runs/a-1", {500}).empty());
  auto expected = contents("runs/a-1");
  expected.erase("metrics.h5");
  CHECK(contents("mirror/a-1") == expected);
  CHECK(expected.count("checkpoints/step-000000500/manifest.json") == 1);
}

TEST_CASE("finish mirrors what the run's small files came to") {
  const ScratchFolder scratch;
  make_run("runs/a-1");
  make_checkpoint("runs/a-1", 500, "first");
  Told told;
  Mirror mirror("mirror", "runs/a-1/", told.here(), kNoPause);
  mirror.push(500);
  wait_for([] { return fs::exists("mirror/a-1/checkpoints/step-000000500/manifest.json"); });
  write("runs/a-1/summary.json", "{}");
  write("runs/a-1/metrics.jsonl", "{\"step\": 1}\n{\"step\": 2}\n");
  mirror.finish(kLong);
  CHECK(told.sentences().empty());
  CHECK(read_file("mirror/a-1/summary.json") == "{}");
  CHECK(read_file("mirror/a-1/metrics.jsonl") == "{\"step\": 1}\n{\"step\": 2}\n");
}

TEST_CASE("a checkpoint that was pruned is passed over without a word") {
  const ScratchFolder scratch;
  make_run("runs/a-1");
  make_checkpoint("runs/a-1", 2, "second");
  CHECK(mirror_all("mirror", "runs/a-1", {1, 2}).empty());
  CHECK_FALSE(fs::exists("mirror/a-1/checkpoints/step-000000001"));
  CHECK(fs::exists("mirror/a-1/checkpoints/step-000000002/manifest.json"));
}

TEST_CASE("a checkpoint that is pruned while it is copied leaves no manifest and no word") {
  const ScratchFolder scratch;
  const fs::path checkpoint = make_checkpoint("run", 1, "x");
  const FakeRclone fake("case \"$*\" in *copy*--exclude*) rm -r '" +
                        fs::absolute(checkpoint).string() + "';; esac; exec \"$RCLONE\" \"$@\"");
  CHECK(mirror_all("mirror", "run", {1}).empty());
  CHECK_FALSE(fs::exists("mirror/run/checkpoints/step-000000001/manifest.json"));
}

TEST_CASE("a checkpoint that took the place of one of the same step does so in the mirror") {
  const ScratchFolder scratch;
  make_checkpoint("run", 1, "before");
  CHECK(mirror_all("mirror", "run", {1}).empty());
  make_checkpoint("run", 1, "behind");
  // What a killed process left must not pass for the new one: the manifest goes first.
  const FakeRclone fake(
      "case \"$*\" in *copy*--exclude*) test ! -e "
      "mirror/run/checkpoints/step-000000001/manifest.json"
      " || exit 1;; esac; exec \"$RCLONE\" \"$@\"");
  CHECK(mirror_all("mirror", "run", {1}).empty());
  CHECK(contents("mirror/run") == contents("run"));
}

TEST_CASE("a mirrored file that is not as it was copied is copied again") {
  const ScratchFolder scratch;
  const fs::path checkpoint = make_checkpoint("run", 1, "contents");
  CHECK(mirror_all("mirror", "run", {1}).empty());
  const fs::path mirrored = "mirror/run/checkpoints/step-000000001/rank-0000.h5";
  write(mirrored, "c0ntents");
  fs::last_write_time(mirrored, fs::last_write_time(checkpoint / "rank-0000.h5"));
  CHECK(mirror_all("mirror", "run", {1}).empty());
  CHECK(contents("mirror/run") == contents("run"));
}

TEST_CASE("a mirror that keeps damaging a file is told about, and has no manifest") {
  const ScratchFolder scratch;
  make_checkpoint("run", 1, "contents");
  const FakeRclone fake(
      "\"$RCLONE\" \"$@\"; code=$?; f=mirror/run/checkpoints/step-000000001/rank-0000.h5; "
      "case \"$*\" in *' copy '*) test ! -e $f || printf c0ntents >$f;; esac; exit $code");
  const auto told = mirror_all("mirror", "run", {1});
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], Contains("The checkpoint of step 1 is not in the mirror \"mirror\"") &&
                          Contains("4 attempts") && Contains("rank-0000.h5"));
  CHECK_FALSE(fs::exists("mirror/run/checkpoints/step-000000001/manifest.json"));
}

TEST_CASE("whatever call of rclone fails from then on, a manifest means a whole checkpoint") {
  int good = 0;
  for (; good < 40; ++good) {
    const ScratchFolder scratch;
    make_run("run");
    make_checkpoint("run", 1, "contents");
    const FakeRclone fake("echo >>calls; test $(wc -l <calls) -le " + std::to_string(good) +
                          " || exit 1; exec \"$RCLONE\" \"$@\"");
    const auto told = mirror_all("mirror", "run", {1});
    const auto mirrored = contents("mirror/run/checkpoints/step-000000001");
    CAPTURE(good);
    if (mirrored.count("manifest.json") > 0)
      CHECK(mirrored == contents("run/checkpoints/step-000000001"));
    if (told.empty()) break;
    CHECK_THAT(told.front(), Contains("rclone failed with exit code 1"));
  }
  CHECK(good >= 6);  // list, copy, compare, and the same for small files and manifest
  CHECK(good < 40);
}

TEST_CASE("files that a variable of the user's hides from rclone are told about") {
  const ScratchFolder scratch;
  make_checkpoint("run", 1, "contents");
  const Variable filter("RCLONE_MAX_SIZE", "10b");
  const auto told = mirror_all("mirror", "run", {1});
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], Contains("rank-0001.h5: rclone did not copy it"));
}

TEST_CASE("each checkpoint that fails is told about, and the next is tried") {
  const ScratchFolder scratch;
  make_checkpoint("run", 1, "one");
  make_checkpoint("run", 2, "two");
  make_checkpoint("run", 3, "three");
  const FakeRclone fake(
      "case \"$*\" in *step-000000003*|*step-000000001*) exit 9;; esac; "
      "exec \"$RCLONE\" \"$@\"");
  const auto told = mirror_all("mirror", "run", {1, 2, 3});
  REQUIRE(told.size() == 2);
  const std::string all = told[0] + told[1];
  CHECK_THAT(all, Contains("of step 1 ") && Contains("of step 3 ") && !Contains("of step 2 "));
  CHECK(fs::exists("mirror/run/checkpoints/step-000000002/manifest.json"));
}

TEST_CASE("of checkpoints that wait, the newest goes first") {
  const ScratchFolder scratch;
  for (const int64_t step : {1, 2, 3}) make_checkpoint("run", step, std::to_string(step));
  const FakeRclone fake(
      "case \"$*\" in *copy*--exclude*) echo \"$*\" >>copies;; esac; touch started; "
      "while test ! -e go; do sleep 0.01; done; exec \"$RCLONE\" \"$@\"");
  Told told;
  Mirror mirror("mirror", "run", told.here(), kNoPause);
  mirror.push(1);
  wait_for([] { return fs::exists("started"); });
  mirror.push(2);
  mirror.push(3);
  write("go", "");
  mirror.finish(kLong);
  CHECK(told.sentences().empty());
  const auto copies = lines_of("copies");
  REQUIRE(copies.size() == 3);
  CHECK_THAT(copies[0], Contains("step-000000001"));
  CHECK_THAT(copies[1], Contains("step-000000003"));
  CHECK_THAT(copies[2], Contains("step-000000002"));
}

TEST_CASE("an rclone that hangs ends with finish, which tells what is missing") {
  const ScratchFolder scratch;
  make_checkpoint("run", 1, "one");
  make_checkpoint("run", 2, "two");
  const FakeRclone fake("echo $$ >pid; exec sleep 1000");
  Told told;
  Mirror mirror("mirror", "run", told.here(), kNoPause);
  mirror.push(1);
  mirror.push(2);
  wait_for([] { return !lines_of("pid").empty(); });
  mirror.finish(0.1);
  CHECK(::kill(std::stoi(lines_of("pid").at(0)), 0) != 0);
  const auto sentences = told.sentences();
  REQUIRE(sentences.size() == 1);
  CHECK_THAT(sentences[0], Contains("lacks the checkpoint of step 1, the checkpoint of step 2, ") &&
                               Contains("the 0.1 s"));
}

TEST_CASE("an rclone that hangs ends with the mirror") {
  const ScratchFolder scratch;
  make_checkpoint("run", 1, "one");
  const FakeRclone fake("echo $$ >pid; exec sleep 1000");
  Told told;
  {
    Mirror mirror("mirror", "run", told.here(), kNoPause);
    mirror.push(1);
    wait_for([] { return !lines_of("pid").empty(); });
  }
  CHECK(::kill(std::stoi(lines_of("pid").at(0)), 0) != 0);
}

TEST_CASE("a mirror that ends without finish tells which checkpoints it drops") {
  const ScratchFolder scratch;
  for (const int64_t step : {1, 2}) make_checkpoint("run", step, std::to_string(step));
  const FakeRclone fake("echo $$ >pid; exec sleep 1000");
  Told told;
  {
    Mirror mirror("mirror", "run", told.here(), kNoPause);
    mirror.push(1);
    wait_for([] { return !lines_of("pid").empty(); });
    mirror.push(2);
    mirror.push(3);  // pruned
  }
  const auto sentences = told.sentences();
  REQUIRE(sentences.size() == 1);
  CHECK_THAT(sentences[0],
             Contains("The mirror \"mirror\" lacks the checkpoint of step 1, the checkpoint of "
                      "step 2, the run's last records, because ") &&
                 Contains(fs::absolute("run").string()));
}

TEST_CASE("a mirror that ends with nothing left to copy says nothing") {
  const ScratchFolder scratch;
  make_checkpoint("run", 1, "one");
  Told told;
  {
    Mirror mirror("mirror", "run", told.here(), kNoPause);
    mirror.push(1);
    wait_for([] { return fs::exists("mirror/run/checkpoints/step-000000001/manifest.json"); });
    mirror.finish(kLong);
  }
  { const Mirror idle("mirror", "run", told.here(), kNoPause); }
  CHECK(told.sentences().empty());
}

TEST_CASE("finish ends early when it is asked to, and tells what is missing") {
  const ScratchFolder scratch;
  make_checkpoint("run", 1, "one");
  const FakeRclone fake("echo $$ >pid; exec sleep 1000");
  Told told;
  {
    Mirror mirror("mirror", "run", told.here(), kNoPause);
    mirror.push(1);
    int asked = 0;
    mirror.finish(1e6, [&] { return ++asked == 3; });
    CHECK(asked == 3);
  }
  const auto sentences = told.sentences();
  REQUIRE(sentences.size() == 1);
  CHECK_THAT(sentences[0], Contains("lacks the checkpoint of step 1, ") && !Contains(" s that"));
}

TEST_CASE("a key that names no remote of rclone's is an error of the configuration") {
  const ScratchFolder scratch;
  CHECK_NOTHROW(Mirror::check("folder"));
  CHECK_NOTHROW(Mirror::check(":memory:bucket"));
  CHECK_THROWS_AS(Mirror::check("nosuch:bucket"), ConfigError);
  CHECK_THROWS_WITH(Mirror::check("nosuch:bucket"), Contains("key 'checkpoint.mirror'") &&
                                                        Contains("\"nosuch:\"") &&
                                                        Contains("rclone config"));
  CHECK_THROWS_AS(Mirror::check(":nosuch:bucket"), ConfigError);
  CHECK_THROWS_AS(Mirror::check(""), ConfigError);
  for (const char* remote : {"nosuch:bucket", ""})
    CHECK_THROWS_WITH(Mirror::check(remote, "--mirror"),
                      Contains("--mirror: ") && !Contains("checkpoint.mirror"));
  const Variable here("RCLONE_CONFIG_MINE_TYPE", "memory");
  CHECK_NOTHROW(Mirror::check("mine:bucket"));
}

TEST_CASE("an rclone that is missing or too old is an error of the configuration") {
  const ScratchFolder scratch;
  {
    const FakeRclone old("echo 'rclone v1.50.2'");
    CHECK_THROWS_WITH(Mirror::check("folder"), Contains("1.50") && Contains("1.53"));
  }
  const Variable none("PATH", "/nowhere");
  CHECK_THROWS_AS(Mirror::check("folder"), ConfigError);
  CHECK_THROWS_WITH(Mirror::check("folder"),
                    Contains("not in PATH") && Contains("apt-get install rclone"));
  CHECK_THROWS_WITH(Mirror::check("folder", "--mirror"),
                    Contains("--mirror: the program rclone") && !Contains("checkpoint.mirror"));
}

}  // namespace zerolab
