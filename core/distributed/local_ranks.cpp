#include "distributed/local_ranks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

#include "zerolab/error.h"

#include "distributed/child_process.h"
#include "distributed/meeting.h"

namespace zerolab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kGrace = std::chrono::milliseconds(1500);  // between SIGTERM and SIGKILL
constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
constexpr int kPeer = static_cast<int>(ExitCode::kPeer);
constexpr int kSignalBase = 128;

bool blames_peer(int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == kPeer;
}

}  // namespace

bool asks_to_stop(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGUSR1;
}

BlockedSignals::BlockedSignals() {
  ::sigemptyset(&signals_);
  for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) ::sigaddset(&signals_, signal);
  // An ignored SIGCHLD would make the kernel throw exit codes away.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, &previous_child_action_);
  ::pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
}

BlockedSignals::~BlockedSignals() {
  ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  ::sigaction(SIGCHLD, &previous_child_action_, nullptr);
}

int BlockedSignals::wait(std::chrono::milliseconds time) const {
  const timespec limit{time.count() / 1000, (time.count() % 1000) * 1000000};
  return std::max(0, ::sigtimedwait(&signals_, nullptr, &limit));
}

LocalRanks::LocalRanks(const LaunchOptions& options, const BlockedSignals& signals)
    : signals_(signals), meeting_(Meeting::host_on_loopback(options.port)) {}

LocalRanks::~LocalRanks() {
  signal_all(SIGKILL);
  for (Rank& rank : ranks_) {
    if (rank.running) ::waitpid(rank.pid, nullptr, 0);
  }
}

namespace {

std::string microseconds_text(Clock::time_point time) {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch());
  return std::to_string(since.count());
}

}  // namespace

void LocalRanks::start(const LaunchOptions& options, const std::string& restart_of) {
  const std::string program = find_program(options.command.at(0));
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    const auto number = std::to_string(rank), size = std::to_string(options.num_ranks);
    std::vector<std::string> changes = {
        "ZEROLAB_RANK=" + number,
        "ZEROLAB_WORLD_SIZE=" + size,
        "ZEROLAB_LOCAL_RANK=" + number,
        "ZEROLAB_LOCAL_SIZE=" + size,
        "ZEROLAB_STORE_PORT=" + std::to_string(meeting_->port()),
        "ZEROLAB_RESTART_OF=" + restart_of,
        "ZEROLAB_LAUNCHED_AT=" + microseconds_text(options.launched_at)};
    // c10d logs a broken connection by itself, beside the sentence that says why it broke.
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
      changes.push_back("TORCH_CPP_LOG_LEVEL=FATAL");
    }
    const auto environment = changed_environment(changes);
    ranks_.push_back({start_child(program, options.command, environment, signals_.previous())});
  }
}

LaunchResult LocalRanks::wait() {
  while (num_running() > 0) {
    const int signal = signals_.wait(std::chrono::milliseconds(stopping_ ? 50 : 1000));
    if (asks_to_stop(signal)) pass_on(signal);
    reap();
    if (!stopping_ && failed_ >= 0) stop();
    if (stopping_ && Clock::now() > kill_at_) signal_all(SIGKILL);
  }
  LaunchResult ended = result();
  ended.run_folder = meeting_->run_folder();
  ended.stop_asked = passed_on_ != 0;
  return ended;
}

int64_t LocalRanks::num_running() const {
  return std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
}

void LocalRanks::signal_all(int signal) {
  killed_ = killed_ || signal == SIGKILL;
  for (const Rank& rank : ranks_) {
    if (rank.running) ::kill(-rank.pid, signal);
  }
}

/// Ranks get one request, however often and in which way the user asks.
void LocalRanks::pass_on(int signal) {
  num_interrupts_ += signal == SIGINT ? 1 : 0;
  if (passed_on_ == 0) {
    passed_on_ = signal;
    signal_all(SIGTERM);
  } else if (num_interrupts_ == 2) {
    given_up_ = true;
    signal_all(SIGKILL);
  }
}

/// Ranks take SIGTERM as a request to stop at their next step edge, which those that wait for the
/// failed one never reach, and one that is stopped does not even see it: SIGKILL follows.
void LocalRanks::stop() {
  stopping_ = true;
  kill_at_ = Clock::now() + kGrace;
  signal_all(SIGTERM);
}

/// Ended by a signal that this launcher sent.
bool LocalRanks::died_as_asked(int status) const {
  return WIFSIGNALED(status) && ((WTERMSIG(status) == SIGTERM && (passed_on_ != 0 || stopping_)) ||
                                 (WTERMSIG(status) == SIGKILL && killed_));
}

/// Takes in what ended, and remembers the first that failed. One that blames its peer gives way to
/// one that does not: the peer may need longer to end.
void LocalRanks::reap() {
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

LaunchResult LocalRanks::result() const {
  LaunchResult ended;
  const auto any = [&](auto what) {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [&](const Rank& rank) { return what(rank.status); });
  };
  if (given_up_) {
    ended.exit_code = kSignalBase + SIGINT;
  } else if (failed_ >= 0) {
    ended = failure();
  } else if (any([](int status) { return WIFSIGNALED(status); })) {
    ended.exit_code = kSignalBase + passed_on_;
  } else if (any([](int status) { return WEXITSTATUS(status) == kStopped; })) {
    ended.exit_code = kStopped;
  }
  return ended;
}

/// Why the run failed: what was reported, unless that only blames a rank whose end says more.
LaunchResult LocalRanks::failure() const {
  LaunchResult ended;
  const int status = status_of(failed_);
  const auto reported = meeting_->failure();
  ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : kPeer;
  const std::string rank = "rank " + std::to_string(failed_);
  if (reported && (!reported->blames_peer() || blames_peer(status))) {
    ended.cause = reported->sentence();
    ended.exit_code = reported->exit_code;
  } else if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    ended.cause =
        rank + " was killed by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
  } else {
    ended.cause =
        rank + " ended with exit code " + std::to_string(ended.exit_code) + " and gave no reason";
  }
  return ended;
}

}  // namespace zerolab
