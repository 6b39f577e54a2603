#pragma once
// One start of all local ranks: their processes, the store where they meet, and how they ended.
//
// Errors: ConfigError for a port in use or a program that cannot be started; nothing runs then.

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "distributed/world.h"

namespace zerolab {

class Meeting;

/// Blocks the signals that the launcher waits for: made before any other thread is, which inherits
/// the mask.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  const sigset_t& previous() const { return previous_; }
  /// The next signal, or 0 when the time is over.
  int wait(std::chrono::milliseconds time) const;

 private:
  sigset_t signals_, previous_;
  struct sigaction previous_child_action_ {};
};

/// True for signals by which users ask a run to stop.
bool asks_to_stop(int signal);

/// How all ranks ended.
struct LaunchResult {
  int exit_code = 0;
  std::string cause;        ///< of a failure; empty if there was none
  std::string run_folder;   ///< that a rank announced; or empty
  bool stop_asked = false;  ///< a signal came from the user
};

class LocalRanks {
 public:
  /// Hosts the meeting.
  LocalRanks(const LaunchOptions& options, const BlockedSignals& signals);
  /// Nothing keeps running, also when starting failed half-way.
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  /// Apart from construction, so that the destructor ends those that run if one cannot be started.
  void start(const LaunchOptions& options, const std::string& restart_of);
  /// Waits for all to end. When one fails, the others are stopped.
  LaunchResult wait();

 private:
  struct Rank {
    pid_t pid = 0;
    bool running = true;
    int status = 0;  ///< as waitpid gives it
  };

  int64_t num_running() const;
  void signal_all(int signal);
  void pass_on(int signal);
  void stop();
  void reap();
  bool died_as_asked(int status) const;
  int status_of(int rank) const { return ranks_[static_cast<size_t>(rank)].status; }
  LaunchResult result() const;
  LaunchResult failure() const;

  const BlockedSignals& signals_;
  std::unique_ptr<Meeting> meeting_;
  std::vector<Rank> ranks_;
  int passed_on_ = 0;       ///< the first signal that the user sent
  int num_interrupts_ = 0;  ///< SIGINTs among them
  bool given_up_ = false;   ///< the user pressed Ctrl-C twice
  bool stopping_ = false;   ///< a rank failed, and the others were told to end
  bool killed_ = false;     ///< those that did not were killed
  std::chrono::steady_clock::time_point kill_at_;
  int failed_ = -1;  ///< the rank that failed first
};

}  // namespace zerolab
