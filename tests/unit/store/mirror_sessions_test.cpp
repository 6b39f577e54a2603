#include "store/mirror_sessions.h"

#include <string>
#include <vector>

#include "zerolab/error.h"

#include "catch.h"
#include "mirror_scratch.h"
#include "store/folder_lock.h"
#include "store/mirror.h"

namespace zerolab {
namespace {

const std::string kMonday = "2026-11-30T08:00:00Z", kTuesday = "2026-12-01T08:00:00Z";

fs::path mirrored_manifest(int64_t step) {
  return CheckpointFolder("mirror/run").path(step) / "manifest.json";
}

/// A run of steps 1, 2 and 3, which finished, and its mirror.
void make_finished_run() {
  make_run("run");
  write("run/sessions.jsonl", session(kMonday));
  write("run/metrics.jsonl", "three rows\n");
  write("run/summary.json", "{}\n");
  for (const int64_t step : {1, 2, 3}) make_checkpoint("run", step, std::to_string(step));
  REQUIRE(mirror_all("mirror", "run", {1, 2, 3}).empty());
  REQUIRE(fs::exists("mirror/run/summary.json"));
}

/// As resume does after a step.
void go_back_to(int64_t step) {
  write("run/sessions.jsonl", session(kMonday) + session(kTuesday, step + 1, "step 1"));
  write("run/metrics.jsonl", "one row\n");
  fs::remove("run/summary.json");
  CheckpointFolder("run").remove_after(step);
}

}  // namespace

TEST_CASE("sessions are of the same run if the first began at the same time from the same place") {
  const auto here = session_starts(session(kMonday) + session(kTuesday, 5));
  REQUIRE(here.size() == 2);
  CHECK(here[1].started == kTuesday);
  CHECK(here[1].first_step == 5);
  CHECK(other_run(session_starts(session(kMonday, 3)), here).empty());
  CHECK_THAT(other_run(session_starts(session(kTuesday)), here),
             Contains(kMonday) && Contains(kTuesday));
  CHECK_THAT(other_run(session_starts(session(kMonday, 1, "runs/b-1@20")), here),
             Contains("runs/b-1@20"));
  const std::string with_columns =
      "{\"columns\":[\"step\"],\"started\":\"" + kMonday + "\",\"source\":\"\"}";
  CHECK(other_run(session_starts(with_columns), here).empty());
}

TEST_CASE("a first session that cannot be read is of any run") {
  const auto here = session_starts(session(kMonday));
  for (const char* text : {"", "\n", "cut {", "[1]", "{\"started\":1}", "{}\n"}) {
    CAPTURE(text);
    CHECK(other_run(session_starts(text), here).empty());
    CHECK(other_run(here, session_starts(text)).empty());
  }
}

TEST_CASE("steps are superseded from where a session begins that the mirror does not know") {
  const auto first = session_starts(session(kMonday));
  const auto both = session_starts(session(kMonday) + session(kTuesday, 5));
  CHECK(first_superseded(first, both) == 5);
  CHECK_FALSE(first_superseded(both, both));
  CHECK_FALSE(first_superseded({}, both));
  CHECK_FALSE(first_superseded(first, {}));
}

TEST_CASE("a mirror that holds another run of the same name is left as it is, with one sentence") {
  const ScratchFolder scratch;
  make_run("run");
  write("run/sessions.jsonl", session(kMonday));
  make_checkpoint("run", 5, "of Monday");
  REQUIRE(mirror_all("mirror", "run", {5}).empty());
  const auto before = contents("mirror");

  fs::remove_all("run");
  make_run("run");
  write("run/sessions.jsonl", session(kTuesday));
  write("run/metrics.jsonl", "of Tuesday");
  for (const int64_t step : {1, 2}) make_checkpoint("run", step, "of Tuesday");
  const auto told = mirror_all("mirror", "run", {1, 2});
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], Contains("\"mirror/run\"") && Contains(kMonday) && Contains(kTuesday) &&
                          Contains("checkpoint.mirror") && Contains("--run-dir"));
  CHECK(contents("mirror") == before);
}

TEST_CASE("fetch refuses a mirror that holds another run than the folder") {
  const ScratchFolder scratch;
  make_finished_run();
  write("run/sessions.jsonl", session(kTuesday));
  for (const bool has_checkpoints : {true, false}) {
    if (!has_checkpoints) fs::remove_all("run/checkpoints");
    const auto before = contents("run");
    CHECK_THROWS_AS(Mirror::fetch("mirror", "run"), StoreError);
    CHECK_THROWS_WITH(Mirror::fetch("mirror", "run", 1),
                      Contains("\"mirror/run\"") && Contains(kMonday) && Contains(kTuesday));
    CHECK(contents("run") == before);
  }
}

TEST_CASE("what a run took back is taken back in the mirror, before anything newer is complete") {
  const ScratchFolder scratch;
  make_finished_run();
  go_back_to(1);
  make_checkpoint("run", 4, "anew");
  // The manifest of the new one is the last: what is superseded is gone then.
  const FakeRclone fake(
      "case \"$*\" in *copy*--include*) test ! -e mirror/run/summary.json && "
      "test ! -e mirror/run/checkpoints/step-000000003/manifest.json || exit 9;; esac; "
      "exec \"$RCLONE\" \"$@\"");
  CHECK(mirror_all("mirror", "run", {4}).empty());
  CHECK_FALSE(fs::exists("mirror/run/summary.json"));
  CHECK(fs::exists(mirrored_manifest(1)));
  CHECK_FALSE(fs::exists(mirrored_manifest(2)));
  CHECK_FALSE(fs::exists(mirrored_manifest(3)));
  CHECK(read_file("mirror/run/metrics.jsonl") == "one row\n");
  fs::remove_all("run");
  CHECK(Mirror::fetch("mirror", "run") == 4);
  CHECK_FALSE(fs::exists("run/summary.json"));
}

TEST_CASE("checkpoints later than the newest here are superseded, earlier ones are kept") {
  const ScratchFolder scratch;
  make_finished_run();
  fs::remove_all("run/checkpoints/step-000000003");
  fs::remove_all("run/checkpoints/step-000000001");  // pruned
  CHECK(mirror_all("mirror", "run", {2}).empty());
  CHECK(fs::exists(mirrored_manifest(1)));
  CHECK(fs::exists(mirrored_manifest(2)));
  CHECK_FALSE(fs::exists(mirrored_manifest(3)));
  CHECK(Mirror::fetch("mirror", "run") == 2);
}

TEST_CASE("a step that was done again stays in the mirror, also if it came out the same") {
  const ScratchFolder scratch;
  make_finished_run();
  go_back_to(1);
  for (const int64_t step : {2, 3}) make_checkpoint("run", step, std::to_string(step));
  CHECK(mirror_all("mirror", "run", {2, 3}).empty());
  auto expected = contents("run");
  expected.erase("metrics.h5");
  CHECK(contents("mirror/run") == expected);
}

TEST_CASE("a run that goes back and ends without a checkpoint leaves no later one in the mirror") {
  const ScratchFolder scratch;
  make_finished_run();
  go_back_to(1);
  CHECK(mirror_all("mirror", "run", {}).empty());
  CHECK_FALSE(fs::exists("mirror/run/summary.json"));
  CHECK(fs::exists(mirrored_manifest(1)));
  CHECK_FALSE(fs::exists(mirrored_manifest(2)));
}

TEST_CASE("a checkpoint that somebody removed here at the end is kept in the mirror") {
  const ScratchFolder scratch;
  make_finished_run();
  fs::remove_all("run/checkpoints/step-000000003");
  CHECK(mirror_all("mirror", "run", {}).empty());
  CHECK(fs::exists(mirrored_manifest(3)));
}

TEST_CASE("what cannot be taken back keeps the next checkpoint from being complete") {
  const ScratchFolder scratch;
  make_finished_run();
  go_back_to(1);
  make_checkpoint("run", 4, "anew");
  const FakeRclone fake(
      "case \"$*\" in *deletefile*step-000000003*) exit 9;; esac; exec \"$RCLONE\" \"$@\"");
  const auto told = mirror_all("mirror", "run", {4});
  REQUIRE(told.size() == 2);
  CHECK_THAT(told[0], Contains("of step 4 is not in the mirror"));
  CHECK_FALSE(fs::exists(mirrored_manifest(4)));
}

TEST_CASE("what somebody else removed from the mirror meanwhile holds up nothing") {
  const ScratchFolder scratch;
  make_finished_run();
  go_back_to(1);
  make_checkpoint("run", 4, "anew");
  const FakeRclone fake(
      "case \"$*\" in *deletefile*) rm mirror/run/checkpoints/step-000000003/manifest.json "
      "mirror/run/summary.json 2>/dev/null;; esac; exec \"$RCLONE\" \"$@\"");
  CHECK(mirror_all("mirror", "run", {4}).empty());
  CHECK(fs::exists(mirrored_manifest(4)));
}

TEST_CASE("fetch brings no summary into a run that goes on") {
  const ScratchFolder scratch;
  make_finished_run();
  go_back_to(1);
  CHECK(Mirror::fetch("mirror", "run", 2) == 2);
  CHECK_FALSE(fs::exists("run/summary.json"));
}

TEST_CASE("fetch is refused while a process writes the run") {
  const ScratchFolder scratch;
  make_finished_run();
  fs::remove_all("run/checkpoints");
  const auto before = contents("run");
  {
    const FolderLock lock("run");
    CHECK_THROWS_AS(Mirror::fetch("mirror", "run"), StoreError);
    CHECK_THROWS_WITH(Mirror::fetch("mirror", "run"), Contains("is writing this run"));
    CHECK(contents("run") == before);
  }
  CHECK(Mirror::fetch("mirror", "run") == 3);
  const FolderLock after("run");
}

}  // namespace zerolab
