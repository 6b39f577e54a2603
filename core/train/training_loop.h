#pragma once
// Steps until the end, or until someone says stop: evaluates, records, guards, saves.
// Ranks: collective.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiment/experiment.h"
#include "train/checkpointer.h"
#include "train/record.h"
#include "train/trainer.h"

namespace zerolab {

/// What a run is told from outside, and what it tells.
struct LoopControl {
  TrainingObserver& observer;
  Checkpointer* checkpoints = nullptr;  ///< none: nothing is saved
  /// [hot] [local] Asked in each step: if any rank says so, all stop after it.
  std::function<bool()> stop_requested = {};
  /// [collective] Loads the newest checkpoint into the trainer; false if there is none. None: there
  /// never is one.
  std::function<bool()> load_newest = {};
};

class TrainingLoop {
 public:
  /// References outlive it.
  TrainingLoop(const Experiment& experiment, Trainer& trainer, LoopControl control);
  ~TrainingLoop();
  TrainingLoop(const TrainingLoop&) = delete;
  TrainingLoop& operator=(const TrainingLoop&) = delete;

  /// [collective] All steps that are left. A run that is stopped has saved itself. Errors: what a
  /// plugin or a peer throws, with step, phase and plugin before it; DivergedError if the guard
  /// stops.
  RunResult run();

 private:
  void run_steps();
  void one_step();
  bool heed_guard(const StepRecord& record);
  void roll_back(const std::string& reason);
  bool saved(const std::function<void()>& work);
  void save(Checkpointer::Need need);
  void finish_checkpoint();
  void note_checkpoint_times(StepRecord& record);
  bool due(int64_t every) const;
  RunResult result(double seconds);

  const Experiment& experiment_;
  Trainer& trainer_;
  LoopControl control_;
  StepRecord last_;
  std::vector<double> rates_;
  RunResult totals_;
};

}  // namespace zerolab
