// Ranks that the launcher starts again after a failure.
#include <csignal>
#include <filesystem>
#include <string>

#include <unistd.h>

#include "catch.h"
#include "launched.h"

using zerolab_test::count;
using zerolab_test::launch;

namespace {

/// A file that ranks count their starts in.
class Counter {
 public:
  Counter() { std::filesystem::remove(path_); }
  ~Counter() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ =
      (std::filesystem::temp_directory_path() / ("zerolab-starts-" + std::to_string(::getpid())))
          .string();
};

}  // namespace

TEST_CASE("ranks that fail twice are started three times, and go on from the run's folder") {
  const Counter starts;
  auto run = launch(3, {"flaky", "2", starts.path()}, 0, 3);
  CHECK(run->wait() == 0);
  INFO(run->output());
  const std::string cause =
      ": rank 2 was killed by signal 9 (Killed); going on from the newest "
      "checkpoint\n";
  CHECK(count(run->output(), "zerolab: restart 1 of 3" + cause) == 1);
  CHECK(count(run->output(), "zerolab: restart 2 of 3" + cause) == 1);
  CHECK(count(run->output(), "zerolab: restart") == 2);
  CHECK(count(run->output(), "error") == 0);
  CHECK(count(run->output(), "going on from nothing\n") == 1);
  CHECK(count(run->output(), "going on from /runs/a-1\n") == 2);
}

TEST_CASE("when restarts are used up the last cause is the error") {
  const int restarts = GENERATE(1, 2);
  auto run = launch(2, {"fail", "1"}, 0, restarts);
  CHECK(run->wait() == 4);
  INFO(run->output());
  const std::string of = " of " + std::to_string(restarts) + ": rank 1: the disk is full; starting";
  for (int i = 1; i <= restarts; ++i)
    CHECK(count(run->output(), "zerolab: restart " + std::to_string(i) + of + " again\n") == 1);
  const std::string after = restarts == 1 ? "1 restart" : "2 restarts";
  CHECK(count(run->output(), "zerolab: error: after " + after + ": rank 1: the disk is full\n") ==
        1);
  CHECK(count(run->output(), "\n") == restarts + 1);
}

TEST_CASE("each restart can use the port that was chosen") {
  auto run = launch(2, {"fail", "0"}, zerolab_test::free_port(), 1);
  CHECK(run->wait() == 4);
  CHECK(count(run->output(), "after 1 restart: rank 0: the disk is full") == 1);
}

TEST_CASE("what another try cannot change is not tried again") {
  const std::string code = GENERATE("2", "3", "6", "9");
  auto run = launch(2, {"code", "1", code}, 0, 3);
  CHECK(run->wait() == std::stoi(code));
  CHECK(count(run->output(), "restart") == 0);
  CHECK(count(run->output(), "zerolab: error: ") == 1);
}

TEST_CASE("a rank's own error is tried again") {
  const std::string code = GENERATE("1", "5");
  auto run = launch(2, {"code", "1", code}, 0, 1);
  CHECK(run->wait() == std::stoi(code));
  CHECK(count(run->output(), "zerolab: restart 1 of 1: ") == 1);
}

TEST_CASE("a run that was stopped or has finished is not started again") {
  CHECK(launch(2, {"part", "0"}, 0, 3)->wait() == 75);
  auto run = launch(2, {"add"}, 0, 3);
  CHECK(run->wait() == 0);
  CHECK(count(run->output(), "restart") == 0);
}

TEST_CASE("a failure after the user asked to stop is not tried again") {
  auto run = launch(2, {"spoil"}, 0, 3);
  run->wait_for_text("ready", 2);
  run->signal(SIGTERM);
  CHECK(run->wait() == 4);
  CHECK(count(run->output(), "zerolab: restart") == 0);
  CHECK(count(run->output(), "zerolab: error: ") == 1);
}

TEST_CASE("a request to stop ends the wait before a restart") {
  auto run = launch(2, {"fail", "1"}, 0, 1, "600");
  run->wait_for_text("restart 1 of 1");
  run->signal(SIGTERM);
  CHECK(run->wait() == 4);
  CHECK(count(run->output(), "zerolab: error: ") == 1);
}
