// Ranks that are stuck or stopped are found and named, under our launcher and without it.
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "catch.h"
#include "launched.h"

using zerolab_test::count;
using zerolab_test::launch;
using zerolab_test::Process;
using zerolab_test::ready_pids;
using zerolab_test::start_like_torchrun;

namespace {

const std::string kStuck = "made no progress for 2 s in step 12, backward: it is stuck\n";
const std::string kMissing = "was not heard of for 2 s; it was last in step 12, backward\n";

}  // namespace

TEST_CASE("a rank that loops for ever is named with its place, and all ranks end") {
  const std::string chosen = GENERATE("0", "2");
  auto run = launch(3, {"loop", chosen});
  CHECK(run->wait() == 5);
  CHECK(run->output().substr(run->output().find("zerolab")) ==
        "zerolab: error: rank " + chosen + ": " + kStuck);
  for (pid_t pid : ready_pids(run->output())) CHECK(zerolab_test::has_ended(pid));
}

TEST_CASE("a rank that is stopped is named by the others, and ends with them") {
  const std::string chosen = GENERATE("0", "1");
  auto run = launch(3, {"freeze", chosen});
  CHECK(run->wait() == 5);
  CHECK(run->output().substr(run->output().find("zerolab")) ==
        "zerolab: error: rank " + chosen + ": " + kMissing);
  for (pid_t pid : ready_pids(run->output())) CHECK(zerolab_test::has_ended(pid));
}

TEST_CASE("a stalled run is started again") {
  auto run = launch(2, {"loop", "1"}, 0, 1);
  CHECK(run->wait() == 5);
  CHECK(count(run->output(), "zerolab: restart 1 of 1: rank 1: made no progress for 2 s") == 1);
  CHECK(count(run->output(), "zerolab: error: after 1 restart: rank 1: " + kStuck) == 1);
}

TEST_CASE("nobody is blamed while a slow rank makes progress and the others wait for it") {
  auto run = launch(3, {"slow", "1"});
  CHECK(run->wait() == 0);
  CHECK(run->output().find("zerolab") == std::string::npos);
}

TEST_CASE("nothing is declared before the first beat") {
  auto run = launch(2, {"unborn", "1"});
  CHECK(run->wait() == 0);
  CHECK(run->output().empty());
}

TEST_CASE("without our launcher every rank tells which one is stuck") {
  const std::string chosen = GENERATE("0", "1");
  const auto ranks = start_like_torchrun(3, {"loop", chosen}, zerolab_test::free_port());
  for (const auto& rank : ranks) {
    CHECK(rank->wait() == 5);
    CHECK(count(rank->output(), "rank " + chosen + ": " + kStuck) == 1);
  }
}

TEST_CASE("without our launcher the others end for a stopped rank, also if it hosts the store") {
  const size_t chosen = GENERATE(0U, 1U);
  const std::string number = std::to_string(chosen);
  const auto ranks = start_like_torchrun(3, {"freeze", number}, zerolab_test::free_port());
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (r == chosen) continue;
    CHECK(ranks[r]->wait() == 5);
    INFO(ranks[r]->output());
    CHECK(count(ranks[r]->output(), "rank " + number + ": " + kMissing) == 1);
  }
}

TEST_CASE("a failure reaches ranks that stay blocked by the rank that failed") {
  const std::string chosen = GENERATE("0", "2");
  const auto ranks = start_like_torchrun(3, {"hold", chosen}, zerolab_test::free_port());
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (std::to_string(r) == chosen) continue;
    CHECK(ranks[r]->wait() == 5);
    CHECK(count(ranks[r]->output(), "rank " + chosen + ": the disk is full\n") == 1);
  }
}

TEST_CASE("a lone process that is stuck says where and ends") {
  Process run({ZEROLAB_TEST_RANK_PROGRAM, "loop", "0"});
  CHECK(run.wait() == 5);
  CHECK(count(run.output(), "zerolab: error: " + kStuck) == 1);
}

TEST_CASE("a process that was stopped and goes on does not take the gap for a stall") {
  Process run({ZEROLAB_TEST_RANK_PROGRAM, "slow", "0"});
  run.wait_for_text("ready");
  run.signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  run.signal(SIGCONT);
  CHECK(run.wait() == 0);
  CHECK(run.output().find("zerolab") == std::string::npos);
}
