#pragma once
// Where a rank's main thread is, and that it moves: written by it, read by the thread that watches
// for ranks that are stuck (watcher.h).
//
// Ranks: [local]. Threads: one writes, any may read.

#include <atomic>
#include <cstdint>

namespace zerolab {

class Pulse {
 public:
  /// [hot] Progress was made, and `phase` of `step` comes next. `phase` is a string literal; `step`
  /// counts from 1, 0 stands for what comes before the first.
  void beat(int64_t step, const char* phase) noexcept {
    step_.store(step, std::memory_order_relaxed);
    phase_.store(phase, std::memory_order_relaxed);
    beats_.fetch_add(1, std::memory_order_relaxed);
  }

  struct Reading {
    int64_t beats = 0;     ///< since the start
    int64_t progress = 0;  ///< grows with each beat, and with each wait that ends
    int64_t step = 0;
    const char* phase = "";
    bool waiting = false;  ///< blocked by other ranks
  };
  Reading read() const noexcept {
    Reading reading;
    reading.beats = beats_.load(std::memory_order_relaxed);
    reading.progress = reading.beats + ended_waits_.load(std::memory_order_relaxed);
    reading.step = step_.load(std::memory_order_relaxed);
    reading.phase = phase_.load(std::memory_order_relaxed);
    reading.waiting = waiting_.load(std::memory_order_relaxed) > 0;
    return reading;
  }

  /// While it lives its thread waits for other ranks: they may be slow, it is not stuck. [hot]
  class Waiting {
   public:
    /// `pulse` may be null.
    explicit Waiting(Pulse* pulse) noexcept : pulse_(pulse) {
      if (pulse_) pulse_->waiting_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Waiting() {
      if (!pulse_) return;
      pulse_->ended_waits_.fetch_add(1, std::memory_order_relaxed);
      pulse_->waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Pulse* pulse_;
  };

 private:
  std::atomic<int64_t> beats_{0}, ended_waits_{0}, step_{0};
  std::atomic<const char*> phase_{""};
  std::atomic<int> waiting_{0};
};

}  // namespace zerolab
