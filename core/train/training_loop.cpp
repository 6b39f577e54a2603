#include "train/training_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <c10/util/Exception.h>

#include "zerolab/error.h"

namespace zerolab {

using Clock = std::chrono::steady_clock;

TrainingLoop::TrainingLoop(const Experiment& experiment, Trainer& trainer, LoopControl control)
    : experiment_(experiment), trainer_(trainer), control_(std::move(control)) {
  if (control_.checkpoints != nullptr) {
    trainer_.set_before_update([this] { control_.checkpoints->before_update(); });
  }
}

TrainingLoop::~TrainingLoop() {
  trainer_.set_before_update({});
}

RunResult TrainingLoop::run() {
  const auto started = Clock::now();
  try {
    run_steps();
  } catch (Error& error) {
    error.in(trainer_.where());
    throw;
  } catch (const c10::Error& error) {
    throw Error(trainer_.where() + ": " + plain_sentence(error));
  } catch (const std::exception& error) {
    throw Error(trainer_.where() + ": " + error.what());
  }
  return result(std::chrono::duration<double>(Clock::now() - started).count());
}

void TrainingLoop::run_steps() {
  while (trainer_.finished_steps() < experiment_.steps && !totals_.stopped) one_step();
  if (control_.checkpoints == nullptr) return;
  trainer_.enter("saving");
  control_.checkpoints->finish();
  StepRecord after;
  note_checkpoint_times(after);
}

void TrainingLoop::one_step() {
  Checkpointer* const checkpoints = control_.checkpoints;
  const bool stop = control_.stop_requested && control_.stop_requested();
  StepRecord record = trainer_.step(stop, checkpoints != nullptr ? checkpoints->vote() : 0);
  rates_.push_back(record.tokens_per_sec);
  if (due(experiment_.evaluation.every)) {
    record.val_loss = trainer_.validate();
    record.evaluated = true;
  }
  if (checkpoints != nullptr) {
    trainer_.enter("saving");
    if (!saved([&] { checkpoints->go_on(trainer_.votes().save); })) return;
    note_checkpoint_times(record);
  }
  trainer_.enter("recording");
  control_.observer.on_step(record);
  last_ = record;
  trainer_.enter("guard");
  if (heed_guard(record)) return;
  const bool last = trainer_.finished_steps() == experiment_.steps;
  totals_.stopped = trainer_.votes().stop && !last;
  const CheckpointConfig& config = experiment_.checkpoint;
  const bool regular = config.every > 0 && trainer_.finished_steps() % config.every == 0;
  const bool to_go_on = totals_.stopped || (last && config.at_end);
  if (!to_go_on && !regular) return;
  saved([&] { save(to_go_on ? Checkpointer::Need::kToGoOn : Checkpointer::Need::kOptional); });
}

/// Runs what saves. Where the guard rolls back, a state that is not finite is a reason to: then it
/// returns false.
bool TrainingLoop::saved(const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const DivergedError& error) {
    if (experiment_.guard.non_finite != "rollback") throw;
    roll_back(error.what());
    return false;
  }
}

/// At the end of training, and every so many steps.
bool TrainingLoop::due(int64_t every) const {
  const int64_t finished = trainer_.finished_steps();
  return finished == experiment_.steps || (every > 0 && finished % every == 0);
}

/// True if training went back.
bool TrainingLoop::heed_guard(const StepRecord& record) {
  const GuardAction action = trainer_.action();
  if (action == GuardAction::kStop) {
    finish_checkpoint();  // it is of a state before this one
    throw DivergedError(record.trouble +
                        "; look at the data and the learning rate, and fork the run from a "
                        "checkpoint with other values ([guard], scheduler.lr).");
  }
  if (action != GuardAction::kRollback) return false;
  roll_back(record.trouble);
  return true;
}

/// What is on its way is published, unless it is of a state that is not finite.
void TrainingLoop::finish_checkpoint() {
  if (control_.checkpoints == nullptr) return;
  try {
    control_.checkpoints->finish();
  } catch (const DivergedError&) {
    return;  // training ends, or goes back, for a better reason
  }
}

void TrainingLoop::roll_back(const std::string& reason) {
  const TrainingPoint bad = trainer_.point();
  if (bad.rollbacks >= experiment_.guard.max_rollbacks) {
    throw DivergedError(reason + ", after " + std::to_string(bad.rollbacks) +
                        " rollbacks (guard.max_rollbacks).");
  }
  trainer_.enter("rollback");
  finish_checkpoint();
  if (!control_.load_newest || !control_.load_newest()) {
    throw DivergedError(reason +
                        ", and there is no checkpoint to go back to yet (checkpoint.every = " +
                        std::to_string(experiment_.checkpoint.every) + ").");
  }
  TrainingPoint point = trainer_.point();
  point.next_sample = bad.next_sample;  // the samples after the bad ones
  point.rollbacks = bad.rollbacks + 1;
  const int64_t step = point.step;
  trainer_.go_on(std::move(point));
  control_.observer.on_rollback(step, "step " + std::to_string(bad.step) + ": " + reason);
  save(Checkpointer::Need::kOptional);  // or a run that breaks off now would meet them again
  totals_.stopped = trainer_.votes().stop;
}

void TrainingLoop::save(Checkpointer::Need need) {
  if (control_.checkpoints == nullptr) return;
  trainer_.enter("saving");
  trainer_.synchronize();
  control_.checkpoints->save(trainer_.point(), need);
}

void TrainingLoop::note_checkpoint_times(StepRecord& record) {
  const Checkpointer::Times times = control_.checkpoints->take_times();
  record.checkpoint_stall_seconds = times.stalled;
  if (times.stalled == times.stalled) totals_.checkpoint_stall_seconds += times.stalled;
  if (times.published == 0) return;
  record.checkpoint_seconds = times.written;
  totals_.checkpoints += times.published;
  totals_.checkpoint_seconds += times.written;
}

RunResult TrainingLoop::result(double seconds) {
  RunResult result = totals_;
  result.last = last_;
  result.val_loss = last_.val_loss;
  result.seconds = seconds;
  result.parameters = trainer_.parameters().total_numel();
  result.skipped_steps = trainer_.point().skipped_steps;
  trainer_.bytes().finish(result);
  // The first steps warm caches up.
  rates_.erase(rates_.begin(), rates_.begin() + static_cast<std::ptrdiff_t>(rates_.size() / 10));
  if (!rates_.empty()) {
    const auto middle = rates_.begin() + static_cast<std::ptrdiff_t>(rates_.size() / 2);
    std::nth_element(rates_.begin(), middle, rates_.end());
    result.tokens_per_sec = *middle;
  }
  return result;
}

}  // namespace zerolab
