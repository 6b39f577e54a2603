#pragma once
// Requests to stop, from signals: SIGINT, SIGTERM and SIGUSR1 (which batch systems send before a
// time limit) set a flag that the training loop reads at step edges.
//
// Order: made before the first step. The handlers stay while it lives; then the earlier ones are
// back. One at a time in a process.
// Ranks: [local]; signals may reach only some ranks, so ranks agree before they act.

#include <array>
#include <csignal>

namespace zerolab {

class StopSignals {
 public:
  /// `second_interrupt_aborts`: after one SIGINT a second one takes its default action at once, as
  /// the user of a lone process expects of Ctrl-C. Ranks of a launcher leave the counting to it.
  explicit StopSignals(bool second_interrupt_aborts);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// A signal has come since the latest StopSignals was made. [hot]
  static bool requested();
  /// The first of them; 0 if none came.
  static int signal();

 private:
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGUSR1};
  std::array<struct sigaction, 3> earlier_{};
};

}  // namespace zerolab
