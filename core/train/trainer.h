#pragma once
// The training loop. It knows the six kinds' interfaces and no plugin.
//
// Order: construct (declares the model, attaches the strategy), then run().
// Ranks: collective.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/util/Exception.h>

#include "zerolab/communicator.h"
#include "zerolab/data.h"
#include "zerolab/model.h"
#include "zerolab/optimizer.h"
#include "zerolab/precision.h"
#include "zerolab/scheduler.h"
#include "zerolab/sharding.h"

#include "experiment/experiment.h"
#include "train/batcher.h"
#include "train/byte_record.h"
#include "train/record.h"

namespace zerolab {

/// One plugin of each kind.
struct TrainingPlugins {
  std::unique_ptr<Data> data;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Precision> precision;
  std::unique_ptr<Sharding> sharding;
};

/// LibTorch's error as a sentence: no stack, and plain words where memory ran out.
std::string plain_sentence(const c10::Error& error);

class Trainer {
 public:
  /// [setup] [collective] Opens the data, declares the model, attaches the strategy. References
  /// outlive the trainer.
  Trainer(const Experiment& experiment, TrainingPlugins& plugins, Communicator& world);
  ~Trainer();

  /// [collective] All steps. Errors: what a plugin or a peer throws, with step and phase
  /// before it.
  RunResult run(TrainingObserver& observer);
  /// [collective] One step, from 0; without evaluation.
  StepRecord step(int64_t step);
  /// [collective] Mean validation loss.
  double validate();

  const Parameters& parameters() const { return parameters_; }
  Sharding& sharding() { return *plugins_.sharding; }

 private:
  struct StepSums {
    double loss = 0, tokens = 0;
  };
  void micro_batch(int64_t step, int64_t micro, double loss_scale);
  StepSums agree_on_sums();
  std::string where(int64_t step) const;
  bool due(int64_t every, int64_t finished) const;
  RunResult result(const StepRecord& last, std::vector<double> rates, double seconds) const;

  const Experiment& experiment_;
  TrainingPlugins& plugins_;
  Communicator& world_;
  PrecisionPolicy policy_;
  Parameters parameters_;
  Units units_;
  std::unique_ptr<Batcher> batcher_;
  double nominal_tokens_;
  at::Tensor backward_seed_;
  std::vector<double> losses_, tokens_;  // per micro-batch of this step
  int64_t applied_updates_ = 0, skipped_steps_ = 0, trained_tokens_ = 0;
  std::unique_ptr<ByteRecord> bytes_;
  const char* phase_ = "set-up";
};

}  // namespace zerolab
