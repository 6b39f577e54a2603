// The launcher of local ranks: one thread that starts them, hosts the store where they meet, and
// waits for signals.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#include "zerolab/error.h"

#include "distributed/child_process.h"
#include "distributed/meeting.h"
#include "distributed/world.h"

namespace zerolab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kGrace = std::chrono::milliseconds(1500);  // between SIGTERM and SIGKILL
constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
constexpr int kPeer = static_cast<int>(ExitCode::kPeer);
constexpr int kConfiguration = static_cast<int>(ExitCode::kConfiguration);
constexpr int kSignalBase = 128;

/// Blocks the signals that the launcher waits for: made before any other thread is, which inherits
/// the mask.
class BlockedSignals {
 public:
  BlockedSignals() {
    ::sigemptyset(&signals_);
    for (int signal : {SIGINT, SIGTERM, SIGCHLD}) ::sigaddset(&signals_, signal);
    // An ignored SIGCHLD would make the kernel throw exit codes away.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &standard, &previous_child_action_);
    ::pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
  }
  ~BlockedSignals() {
    ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
    ::sigaction(SIGCHLD, &previous_child_action_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  const sigset_t& previous() const { return previous_; }
  /// The next signal, or 0 when the time is over.
  int wait(std::chrono::milliseconds time) const {
    const timespec limit{time.count() / 1000, (time.count() % 1000) * 1000000};
    return std::max(0, ::sigtimedwait(&signals_, nullptr, &limit));
  }

 private:
  sigset_t signals_, previous_;
  struct sigaction previous_child_action_ {};
};

struct Rank {
  pid_t pid = 0;
  bool running = true;
  int status = 0;  ///< as waitpid gives it
};

class LocalRanks {
 public:
  explicit LocalRanks(const LaunchOptions& options)
      : meeting_(Meeting::host_on_loopback(options.port)) {}

  /// Apart from construction, so that the destructor ends those that run if one cannot be started.
  void start(const LaunchOptions& options) {
    const std::string program = find_program(options.command.at(0));
    for (int rank = 0; rank < options.num_ranks; ++rank) {
      const auto number = std::to_string(rank), size = std::to_string(options.num_ranks);
      std::vector<std::string> changes = {
          "ZEROLAB_RANK=" + number, "ZEROLAB_WORLD_SIZE=" + size, "ZEROLAB_LOCAL_RANK=" + number,
          "ZEROLAB_LOCAL_SIZE=" + size, "ZEROLAB_STORE_PORT=" + std::to_string(meeting_->port())};
      // c10d logs a broken connection by itself, beside the sentence that says why it broke.
      if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
        changes.push_back("TORCH_CPP_LOG_LEVEL=FATAL");
      }
      const auto environment = changed_environment(changes);
      ranks_.push_back({start_child(program, options.command, environment, signals_.previous())});
    }
  }
  ~LocalRanks() {
    // Only when starting failed half-way, or something threw: nothing keeps running.
    signal_all(SIGKILL);
    for (Rank& rank : ranks_) {
      if (rank.running) ::waitpid(rank.pid, nullptr, 0);
    }
  }
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  int wait() {
    while (num_running() > 0) {
      const int signal = signals_.wait(std::chrono::milliseconds(stopping_ ? 50 : 1000));
      if (signal == SIGINT || signal == SIGTERM) pass_on(signal);
      reap();
      if (!stopping_ && failed_ >= 0) stop();
      if (stopping_ && Clock::now() > kill_at_) signal_all(SIGKILL);
    }
    return finish();
  }

 private:
  int64_t num_running() const {
    return std::count_if(ranks_.begin(), ranks_.end(),
                         [](const Rank& rank) { return rank.running; });
  }
  void signal_all(int signal) {
    killed_ = killed_ || signal == SIGKILL;
    for (const Rank& rank : ranks_) {
      if (rank.running) ::kill(-rank.pid, signal);
    }
  }
  void pass_on(int signal) {
    if (passed_on_ == 0) {
      passed_on_ = signal;
      signal_all(SIGTERM);
    } else if (signal == SIGINT) {
      given_up_ = true;
      signal_all(SIGKILL);
    }
  }
  void stop() {
    stopping_ = true;
    kill_at_ = Clock::now() + kGrace;
    signal_all(SIGTERM);
  }
  /// Ended by a signal that this launcher sent.
  bool died_as_asked(int status) const {
    return WIFSIGNALED(status) &&
           ((WTERMSIG(status) == SIGTERM && (passed_on_ != 0 || stopping_)) ||
            (WTERMSIG(status) == SIGKILL && killed_));
  }
  static bool blames_peer(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == kPeer; }
  /// Takes in what ended, and remembers the first that failed. One that blames its peer gives way
  /// to one that does not: the peer may need longer to end.
  void reap() {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      Rank& rank = ranks_[i];
      if (!rank.running || ::waitpid(rank.pid, &rank.status, WNOHANG) != rank.pid) continue;
      rank.running = false;
      const bool fine = WIFEXITED(rank.status) &&
                        (WEXITSTATUS(rank.status) == 0 || WEXITSTATUS(rank.status) == kStopped);
      if (fine || died_as_asked(rank.status)) continue;
      if (failed_ < 0 || (blames_peer(status_of(failed_)) && !blames_peer(rank.status)))
        failed_ = static_cast<int>(i);
    }
  }
  int status_of(int rank) const { return ranks_[static_cast<size_t>(rank)].status; }
  int code_of(int rank) const {
    const int status = status_of(rank);
    return WIFEXITED(status) ? WEXITSTATUS(status) : kPeer;
  }
  int finish() const {
    if (given_up_) return kSignalBase + SIGINT;
    if (failed_ >= 0) return tell_cause();
    const auto any = [&](auto what) {
      return std::any_of(ranks_.begin(), ranks_.end(),
                         [&](const Rank& rank) { return what(rank.status); });
    };
    if (any([](int status) { return WIFSIGNALED(status); })) return kSignalBase + passed_on_;
    return any([](int status) { return WEXITSTATUS(status) == kStopped; }) ? kStopped : 0;
  }
  /// Prints why the run failed, once, and returns its exit code.
  int tell_cause() const {
    const int status = status_of(failed_);
    const auto reported = meeting_->failure();
    const bool only_blames_peer = reported && reported->exit_code == kPeer;
    std::string cause = "rank " + std::to_string(failed_);
    int code = code_of(failed_);
    if (reported && (!only_blames_peer || blames_peer(status))) {
      cause = reported->exit_code == kConfiguration || reported->rank == kNoRank
                  ? reported->message
                  : "rank " + std::to_string(reported->rank) + ": " + reported->message;
      code = reported->exit_code;
    } else if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      cause += " was killed by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
    } else {
      cause += " ended with exit code " + std::to_string(code) + " and gave no reason";
    }
    std::fprintf(stderr, "zerolab: error: %s\n", cause.c_str());
    return code;
  }

  BlockedSignals signals_;  // first: before the store's threads
  std::unique_ptr<Meeting> meeting_;
  std::vector<Rank> ranks_;
  int passed_on_ = 0;      ///< the first signal that the user sent
  bool given_up_ = false;  ///< the user asked twice
  bool stopping_ = false;  ///< a rank failed, and the others were told to end
  bool killed_ = false;    ///< those that did not were killed
  Clock::time_point kill_at_;
  int failed_ = -1;  ///< the rank that failed first
};

}  // namespace

int launch_local_ranks(const LaunchOptions& options) {
  if (options.num_ranks < 1)
    throw ConfigError("the number of ranks must be at least 1, not " +
                      std::to_string(options.num_ranks));
  LocalRanks ranks(options);
  ranks.start(options);
  return ranks.wait();
}

}  // namespace zerolab
