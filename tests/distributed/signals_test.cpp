// Requests to stop: from the user to the launcher and its ranks, and to a lone process.
#include <csignal>
#include <memory>

#include "catch.h"
#include "launched.h"

using zerolab_test::count;
using zerolab_test::launch;
using zerolab_test::Process;
using zerolab_test::ready_pids;

namespace {

std::unique_ptr<Process> start_alone(const std::string& action) {
  return std::make_unique<Process>(std::vector<std::string>{ZEROLAB_TEST_RANK_PROGRAM, action});
}

}  // namespace

TEST_CASE("a request to stop reaches every rank once, and stopped ranks give 75") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGUSR1);
  auto run = launch(3, {"stop"});
  run->wait_for_text("ready", 3);
  run->signal(signal);
  CHECK(run->wait() == 75);
  CHECK(count(run->output(), "told to stop") == 3);
  CHECK(count(run->output(), "error") == 0);
}

TEST_CASE("ranks stop at a step edge, and not before") {
  auto run = launch(2, {"step"});
  run->wait_for_text("ready", 2);
  run->signal(SIGTERM);
  CHECK(run->wait() == 75);
  CHECK(run->output().find("error") == std::string::npos);
  CHECK(count(run->output(), "stops at a step edge, signal 15\n") == 2);
}

TEST_CASE("a second Ctrl-C kills ranks that do not stop") {
  auto run = launch(3, {"hang"});
  run->wait_for_text("ready", 3);
  run->signal(SIGINT);
  run->wait_for_text("told to stop", 3);
  run->signal(SIGINT);
  CHECK(run->wait() == 130);
  CHECK(count(run->output(), "told to stop") == 3);
  CHECK(count(run->output(), "error") == 0);
  for (pid_t pid : ready_pids(run->output())) CHECK(zerolab_test::has_ended(pid));
}

TEST_CASE("other signals after the first are passed over, and so is the first Ctrl-C then") {
  auto run = launch(2, {"patient"});
  run->wait_for_text("ready", 2);
  run->signal(SIGUSR1);
  run->wait_for_text("told to stop", 2);
  run->signal(SIGTERM);
  run->signal(SIGINT);
  CHECK(run->wait() == 75);
  CHECK(count(run->output(), "told to stop") == 2);
}

TEST_CASE("ranks that die of the request end the run as the signal would") {
  auto run = launch(2, {"defenceless"});
  run->wait_for_text("ready", 2);
  run->signal(SIGTERM);
  CHECK(run->wait() == 128 + SIGTERM);
  CHECK(count(run->output(), "error") == 0);
}

TEST_CASE("a lone process stops at a step edge") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGUSR1);
  auto run = start_alone("step");
  run->wait_for_text("ready");
  run->signal(signal);
  CHECK(run->wait() == 75);
  CHECK(count(run->output(), "stops at a step edge, signal " + std::to_string(signal) + "\n") == 1);
}

TEST_CASE("a second Ctrl-C ends a lone process at once, a second SIGTERM does not") {
  auto run = start_alone("stepless");
  run->wait_for_text("ready");
  run->signal(SIGTERM);
  run->wait_for_text("signal 15");
  run->signal(SIGTERM);
  run->signal(SIGINT);
  run->wait_for_text("signal 15", 3);
  run->signal(SIGINT);
  CHECK(run->wait() == 128 + SIGINT);
}
