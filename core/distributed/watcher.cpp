#include "distributed/watcher.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <utility>

#include <unistd.h>

namespace zerolab {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kLongestTick = 0.1, kLongestRound = 0.5;  // seconds
constexpr int kTicksInTimeout = 10, kRoundsInTimeout = 4;

/// Threads that start while it lives leave all signals to the others.
class QuietThreads {
 public:
  QuietThreads() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  ~QuietThreads() { ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  QuietThreads(const QuietThreads&) = delete;
  QuietThreads& operator=(const QuietThreads&) = delete;

 private:
  sigset_t previous_;
};

/// Seconds in which this process ran: a gap between two looks, in which it was stopped, counts as
/// a few ticks.
class AwakeClock {
 public:
  explicit AwakeClock(double tick_s) : most_(5 * tick_s) {}
  double now() {
    const auto time = Clock::now();
    awake_ += std::min(most_, Seconds(time - last_).count());
    last_ = time;
    return awake_;
  }

 private:
  double most_, awake_ = 0;
  Clock::time_point last_ = Clock::now();
};

}  // namespace

Watcher::Watcher(const RankEnvironment& environment, std::shared_ptr<const Pulse> pulse,
                 double stall_timeout_s)
    : environment_(environment),
      pulse_(std::move(pulse)),
      judge_(environment.rank, stall_timeout_s) {
  const QuietThreads quiet;
  if (environment.size > 1 || environment.source == "zerolab") {
    const Seconds round(std::min(kLongestRound, stall_timeout_s / kRoundsInTimeout));
    exchange_ = std::make_unique<BeatExchange>(
        environment, pulse_, std::chrono::duration_cast<std::chrono::milliseconds>(round));
  }
  const double tick_s = std::min(kLongestTick, stall_timeout_s / kTicksInTimeout);
  thread_ = std::thread([this, tick_s] { run(tick_s); });
}

Watcher::~Watcher() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watcher::run(double tick_s) {
  AwakeClock clock(tick_s);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, Seconds(tick_s), [&] { return leaving_; })) {
    const Round round = exchange_ ? exchange_->round() : Round();
    if (auto verdict = judge_.judge(clock.now(), pulse_->read(), round)) end(*verdict);
  }
}

void Watcher::end(const Verdict& verdict) {
  Failure first = verdict.cause;
  if (exchange_) {
    const auto cause = verdict.reported ? std::nullopt : std::optional(verdict.cause);
    first = exchange_->conclude(cause).value_or(first);
  }
  if (environment_.source != "zerolab") {
    const bool alone = environment_.size == 1;
    const std::string line = "zerolab: error: " + (alone ? first.message : first.sentence()) + "\n";
    // Not through a FILE: the main thread may hang with its lock.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  }
  ::_exit(static_cast<int>(ExitCode::kPeer));
}

}  // namespace zerolab
