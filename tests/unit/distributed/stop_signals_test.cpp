#include "distributed/stop_signals.h"

#include <csignal>

#include "catch.h"

using zerolab::StopSignals;

namespace {

int num_handled = 0;

}  // namespace

TEST_CASE("each signal that asks to stop is kept, and the first one counts") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGUSR1);
  const StopSignals signals(false);
  CHECK_FALSE(StopSignals::requested());
  CHECK(StopSignals::signal() == 0);
  std::raise(signal);
  CHECK(StopSignals::requested());
  for (int other : {SIGINT, SIGTERM, SIGUSR1, SIGINT}) std::raise(other);
  CHECK(StopSignals::signal() == signal);
}

TEST_CASE("a new one begins without a request") {
  {
    const StopSignals signals(false);
    std::raise(SIGTERM);
  }
  CHECK(StopSignals::requested());
  const StopSignals signals(false);
  CHECK_FALSE(StopSignals::requested());
}

TEST_CASE("the handlers that were there before come back") {
  const auto earlier = std::signal(SIGUSR1, [](int) { ++num_handled; });
  {
    const StopSignals signals(true);
    std::raise(SIGUSR1);
  }
  CHECK(num_handled == 0);
  std::raise(SIGUSR1);
  CHECK(num_handled == 1);
  std::signal(SIGUSR1, earlier);
}

TEST_CASE("only a lone process's second SIGINT takes the default action") {
  struct sigaction action {};
  {
    const StopSignals signals(true);
    std::raise(SIGINT);
    CHECK(StopSignals::signal() == SIGINT);
    ::sigaction(SIGINT, nullptr, &action);
    CHECK(action.sa_handler == SIG_DFL);
  }
  const StopSignals signals(false);
  std::raise(SIGINT);
  ::sigaction(SIGINT, nullptr, &action);
  CHECK(action.sa_handler != SIG_DFL);
}
