#include "distributed/stop_signals.h"

#include <atomic>

namespace zerolab {
namespace {

std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler writes it");

void keep_signal(int number) {
  int none = 0;
  first_signal.compare_exchange_strong(none, number, std::memory_order_relaxed);
}

}  // namespace

StopSignals::StopSignals(bool second_interrupt_aborts) {
  first_signal.store(0, std::memory_order_relaxed);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = keep_signal;
    ::sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    // The kernel itself goes back to the default action after the first one.
    if (second_interrupt_aborts && kSignals[i] == SIGINT)
      action.sa_flags |= static_cast<int>(SA_RESETHAND);
    ::sigaction(kSignals[i], &action, &earlier_[i]);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &earlier_[i], nullptr);
}

bool StopSignals::requested() {
  return signal() != 0;
}

int StopSignals::signal() {
  return first_signal.load(std::memory_order_relaxed);
}

}  // namespace zerolab
