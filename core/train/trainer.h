#pragma once
// The training step. It knows the six kinds' interfaces and no plugin.
//
// Order: construct (declares the model, attaches the strategy), go_on() if a checkpoint was loaded,
// then step() after step(). training_loop.h does so.
// Ranks: collective.

#include <cstdint>
#include <functional>
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
#include "store/manifest.h"
#include "train/batcher.h"
#include "train/byte_record.h"
#include "train/guard.h"
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

/// What ranks tell each other once a step beside its sums.
struct StepVotes {
  bool stop = false;         ///< all ranks' : any of them was asked to
  std::vector<double> save;  ///< one a rank; see Checkpointer::vote()
};

class Trainer {
 public:
  /// [setup] [collective] Opens the data, declares the model, attaches the strategy. References
  /// outlive the trainer.
  Trainer(const Experiment& experiment, TrainingPlugins& plugins, Communicator& world);
  ~Trainer();

  /// Tells where the trainer is; the phase is a string literal. [hot] [local]
  void set_pulse(std::function<void(int64_t step, const char* phase)> pulse);
  /// Called in each step before anything changes the state. [hot] [local]
  void set_before_update(std::function<void()> before_update);

  /// [local] Goes on from a point, whose tensors are loaded already.
  void go_on(TrainingPoint point);
  /// [local] Where it stands: all that a checkpoint needs besides tensors.
  TrainingPoint point() const;
  int64_t finished_steps() const { return point_.step; }

  /// [collective] One step, without evaluation. `stop` and `save` are this rank's votes. The
  /// record's trouble says what the guard found; action() what it wants.
  StepRecord step(bool stop = false, double save = 0);
  GuardAction action() const { return action_; }
  const StepVotes& votes() const { return votes_; }
  /// [collective] Makes the state that of one training, where ranks part between synchronizations:
  /// before a save.
  void synchronize();
  /// [collective] Mean validation loss, which becomes part of the point.
  double validate();

  /// Where it is, for errors: "step 12, backward, model 'NAME'". The phase is what enter() was told
  /// last.
  std::string where() const;
  void enter(const char* phase);

  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  Sharding& sharding() { return *plugins_.sharding; }
  const Optimizer& optimizer() const { return *plugins_.optimizer; }
  const ByteRecord& bytes() const { return *bytes_; }

 private:
  struct StepSums {
    double loss = 0, tokens = 0;
    std::string not_finite;  ///< where the first loss is that is not; empty: nowhere
  };
  void check_plugins() const;
  void check_parameter_dtype() const;
  void micro_batch(int64_t micro, double loss_scale);
  StepSums agree_on_sums(bool stop, double save);
  void update(const GuardVerdict& verdict, double multiplier, StepRecord& record);
  std::string trouble(const GuardVerdict& verdict, const StepSums& sums, double loss_scale);

  const Experiment& experiment_;
  TrainingPlugins& plugins_;
  Communicator& world_;
  std::function<void(int64_t, const char*)> pulse_;
  std::function<void()> before_update_;
  PrecisionPolicy policy_;
  Parameters parameters_;
  Units units_;
  std::unique_ptr<Batcher> batcher_;
  double nominal_tokens_;
  at::Tensor backward_seed_;
  std::vector<double> losses_, tokens_;  // per micro-batch of this step
  TrainingPoint point_;                  // but for what the precision and the guard know themselves
  int64_t current_step_ = 0;             // that goes on, or was finished last
  Guard guard_;
  GuardAction action_ = GuardAction::kNone;  // of the last step
  StepVotes votes_;                          // of the last step
  std::unique_ptr<ByteRecord> bytes_;
  const char* phase_ = "set-up";
};

}  // namespace zerolab
