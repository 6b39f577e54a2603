#include <csignal>
#include <memory>

#include "catch.h"
#include "launched.h"
#include "process.h"

using zerolab_test::count;
using zerolab_test::launch;
using zerolab_test::Process;
using zerolab_test::ready_pids;
using zerolab_test::start_like_torchrun;

TEST_CASE("launched ranks meet, add and leave without a word from the launcher") {
  const int num_ranks = GENERATE(1, 2, 3, 4);
  auto run = launch(num_ranks, {"add"});
  CHECK(run->wait() == 0);
  const int sum = num_ranks * (num_ranks + 1) / 2;
  INFO(run->output());
  CHECK(count(run->output(), "sum " + std::to_string(sum)) == num_ranks);
  CHECK(count(run->output(), "\n") == num_ranks);
}

TEST_CASE("each rank has its own process group and reads nothing from the terminal") {
  auto run = launch(2, {"describe"});
  CHECK(run->wait() == 0);
  CHECK(count(run->output(), "input /dev/null, own group yes\n") == 2);
}

TEST_CASE("the first cause is printed once, with its rank, and gives the exit code") {
  const std::string chosen = GENERATE("0", "2");
  auto run = launch(3, {"fail", chosen});
  CHECK(run->wait() == 4);
  CHECK(run->output() == "zerolab: error: rank " + chosen + ": the disk is full\n");
}

TEST_CASE("a mistake in the configuration that all ranks find is printed once, without a rank") {
  auto run = launch(4, {"configuration"});
  CHECK(run->wait() == 2);
  CHECK(run->output() == "zerolab: error: a.toml:1:1: nothing is right\n");
}

TEST_CASE("a rank that a signal kills is named with the signal") {
  auto run = launch(3, {"kill", "2"});
  CHECK(run->wait() == 5);
  CHECK(run->output() == "zerolab: error: rank 2 was killed by signal 9 (Killed)\n");
}

TEST_CASE("a rank that ends without a reason is named with its exit code") {
  auto run = launch(3, {"exit", "1"});
  CHECK(run->wait() == 9);
  CHECK(run->output() == "zerolab: error: rank 1 ended with exit code 9 and gave no reason\n");
}

TEST_CASE("a stuck rank is found by the time-out, and killed though it ignores SIGTERM") {
  auto run = launch(2, {"stick", "1"});
  CHECK(run->wait() == 5);
  INFO(run->output());
  CHECK(count(run->output(), "zerolab: error: rank 0: waited longer than 1 s for rank 1 in ") == 1);
  CHECK(count(run->output(), "zerolab: error:") == 1);
  for (pid_t pid : ready_pids(run->output())) CHECK(zerolab_test::has_ended(pid));
}

TEST_CASE("a port in use starts nothing") {
  const zerolab_test::HeldPort held;
  auto run = launch(2, {"hang"}, held.port());
  CHECK(run->wait() == 2);
  CHECK(count(run->output(), "zerolab: error: port " + std::to_string(held.port()) +
                                 " of this machine is in use") == 1);
  CHECK(count(run->output(), "ready") == 0);
}

TEST_CASE("a chosen port is used, and is free again at once") {
  const int port = zerolab_test::free_port();
  CHECK(launch(2, {"add"}, port)->wait() == 0);
  CHECK(launch(2, {"add"}, port)->wait() == 0);
}

TEST_CASE("a program that cannot be started is a mistake in the command") {
  auto run = launch(2, {"missing"});
  CHECK(run->wait() == 2);
  CHECK(run->output() ==
        "zerolab: error: cannot start \"/nowhere/program\" as a rank: No such file or directory\n");
}

TEST_CASE("stopped and finished ranks together are a stopped run") {
  CHECK(launch(2, {"part", "0"})->wait() == 75);
}

TEST_CASE("ranks do not outlive a launcher that is killed") {
  auto run = launch(2, {"hang"});
  run->wait_for_text("ready", 2);
  run->signal(SIGKILL);
  CHECK(run->wait() == 128 + SIGKILL);  // returns once no rank holds the pipe any more
  for (pid_t pid : ready_pids(run->output())) CHECK(zerolab_test::has_ended(pid));
}

TEST_CASE("ranks that torchrun started meet at rank 0 and tell their own errors") {
  const int port = zerolab_test::free_port();
  SECTION("all is well") {
    for (auto& rank : start_like_torchrun(3, {"add"}, port)) {
      CHECK(rank->wait() == 0);
      CHECK(count(rank->output(), "sum 6") == 1);
    }
  }
  SECTION("the host of the store fails: the others still learn why") {
    const auto ranks = start_like_torchrun(3, {"fail", "0"}, port);
    CHECK(ranks[0]->wait() == 4);
    CHECK(ranks[0]->output() == "rank 0 ends: the disk is full\n");
    for (size_t r : {1U, 2U}) {
      CHECK(ranks[r]->wait() == 5);
      CHECK(ranks[r]->output() ==
            "rank " + std::to_string(r) + " ends: rank 0: the disk is full\n");
    }
  }
}

TEST_CASE("a port in use at torchrun's address is a mistake in the configuration") {
  const zerolab_test::HeldPort held;
  auto rank = std::move(start_like_torchrun(1, {"add"}, held.port())[0]);
  CHECK(rank->wait() == 0);  // one rank meets nobody and needs no port
  auto ranks = start_like_torchrun(2, {"add"}, held.port());
  CHECK(ranks[0]->wait() == 2);
  CHECK(count(ranks[0]->output(),
              "port " + std::to_string(held.port()) + " of this machine is in use") == 1);
}

TEST_CASE("a GPU without the library for it is a mistake in the configuration") {
  auto run = launch(2, {"gpu"});
  CHECK(run->wait() == 2);
  CHECK(count(run->output(), "libzerolab_nccl.so, which is not there: build with") == 1);
  CHECK(count(run->output(), "zerolab: error: device = \"cuda\" needs ") == 1);
}

TEST_CASE("a network interface that is not there is named") {
  const std::map<std::string, std::string> variables{
      {"RANK", "0"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_RANK", "0"},
      {"LOCAL_WORLD_SIZE", "1"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(zerolab_test::free_port())},
      {"ZEROLAB_INTERFACE", "no_such_0"}};
  auto others = variables;
  others["RANK"] = "1";
  Process first({ZEROLAB_TEST_RANK_PROGRAM, "add"}, variables),
      second({ZEROLAB_TEST_RANK_PROGRAM, "add"}, others);
  CHECK(first.wait() == 2);
  CHECK(count(first.output(), "ZEROLAB_INTERFACE (or GLOO_SOCKET_IFNAME) = \"no_such_0\" is not") ==
        1);
}
