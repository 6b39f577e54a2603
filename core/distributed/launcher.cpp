// The launcher of local ranks: starts them, and again after a failure if it may. One thread that
// waits for signals, beside those of the store that it hosts.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "zerolab/error.h"

#include "distributed/local_ranks.h"
#include "distributed/world.h"

namespace zerolab {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr double kLongestWait = 30;  // seconds before a restart

/// Failures that another try may not meet. A mistake in the configuration or a plugin stays, and
/// training that diverged does so again.
bool worth_a_restart(int exit_code) {
  return exit_code == static_cast<int>(ExitCode::kError) ||
         exit_code == static_cast<int>(ExitCode::kStore) ||
         exit_code == static_cast<int>(ExitCode::kPeer);
}

std::string counted_restarts(int number) {
  return std::to_string(number) + (number == 1 ? " restart" : " restarts");
}

LaunchResult run_once(const LaunchOptions& options, const BlockedSignals& signals,
                      const std::string& restart_of) {
  LocalRanks ranks(options, signals);
  ranks.start(options, restart_of);
  return ranks.wait();
}

/// False if the user asks to stop meanwhile.
bool wait_before_restart(const BlockedSignals& signals, double seconds) {
  const auto end = Clock::now() + milliseconds(static_cast<int64_t>(seconds * 1000));
  for (auto left = end - Clock::now(); left.count() > 0; left = end - Clock::now()) {
    const auto time = std::chrono::duration_cast<milliseconds>(left) + milliseconds(1);
    if (asks_to_stop(signals.wait(time))) return false;
  }
  return true;
}

void tell_restart(int number, int restarts, const std::string& cause,
                  const std::string& run_folder) {
  std::fprintf(stderr, "zerolab: restart %d of %d: %s; %s\n", number, restarts, cause.c_str(),
               run_folder.empty() ? "starting again" : "going on from the newest checkpoint");
}

}  // namespace

int launch_local_ranks(const LaunchOptions& options) {
  if (options.num_ranks < 1)
    throw ConfigError("the number of ranks must be at least 1, not " +
                      std::to_string(options.num_ranks));
  const BlockedSignals signals;  // first: before the store's threads
  std::string run_folder;
  double wait_s = options.restart_wait_s;
  for (int restarted = 0;; ++restarted) {
    const LaunchResult ended = run_once(options, signals, run_folder);
    if (ended.cause.empty()) return ended.exit_code;
    if (!ended.run_folder.empty()) run_folder = ended.run_folder;
    std::string cause = ended.cause;
    if (worth_a_restart(ended.exit_code) && !ended.stop_asked) {
      if (restarted < options.restarts) {
        tell_restart(restarted + 1, options.restarts, cause, run_folder);
        if (wait_before_restart(signals, wait_s)) {
          wait_s = std::min(2 * wait_s, kLongestWait);
          continue;
        }
      } else if (restarted > 0) {
        cause = "after " + counted_restarts(restarted) + ": " + cause;
      }
    }
    std::fprintf(stderr, "zerolab: error: %s\n", cause.c_str());
    return ended.exit_code;
  }
}

}  // namespace zerolab
