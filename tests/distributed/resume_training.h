#pragma once
// Trainings that are cut into sessions: each makes new plugins and a new trainer, may load a
// checkpoint, runs the training loop and may save. Ranks are threads of this process.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "small_training.h"
#include "store/checkpoint_reader.h"
#include "store/file_layer.h"
#include "store/manifest.h"
#include "train/record.h"
#include "train/trainer.h"

/// One session of a run, with the experiment of all of them.
struct Session {
  zerolab::Experiment experiment;
  int ranks = 1;
  std::filesystem::path run = {};   ///< its checkpoints are saved there; empty: none are
  std::filesystem::path from = {};  ///< the run whose checkpoint is loaded; empty: it starts new
  int64_t step = 0;                 ///< of that checkpoint
  int64_t stop_after = 0;           ///< finished steps after which it is told to stop; 0: never
  bool same_owners = false, fork = false;
  std::function<void(zerolab::TrainingPlugins&, int rank)> change_plugins = {};
  std::function<void(zerolab::TrainingPoint&)> change_point = {};  ///< that was loaded
  /// Each rank's, where it is, as Trainer::set_pulse; training thread.
  std::function<void(int rank, int64_t step, const char* phase)> pulse = {};
  std::vector<zerolab::FileLayer*> files = {};  ///< by rank; empty: those of the disk
};

/// What a session did, as rank 0 tells it; samples and state are those of all ranks.
struct History {
  std::vector<zerolab::StepRecord> steps;
  std::vector<std::vector<int64_t>> samples;  ///< of each step, in the order of global numbers
  std::vector<std::pair<int64_t, std::string>> rollbacks;
  std::vector<std::string> notes;  ///< of loading
  std::vector<std::string> told;   ///< by the checkpointer
  std::vector<int64_t> published;
  Tensors state;  ///< "parameter/state" at the end, frozen parameters too
  zerolab::TrainingPoint point;
  bool stopped = false;
};

/// How a rank ended; exit code 0: without an error.
struct Failure {
  int exit_code = 0;
  std::string message;
};

/// Errors: what a rank throws first.
History train(const Session& session);
/// By rank. What was told until then goes to `history`.
std::vector<Failure> failures(const Session& session, History* history = nullptr);

/// One rank before its first step, for what train() does not do.
struct StandingRank {
  zerolab::Communicator& world;
  zerolab::Trainer& trainer;
};
void on_ranks(const Session& session, const std::function<void(StandingRank&)>& body);
/// [collective] As a session does it.
std::vector<std::string> load(const Session& session, StandingRank& rank, int64_t step);
/// All of a rank's pieces, in memory of their own.
std::vector<at::Tensor> copied_state(zerolab::Trainer& trainer);

/// An experiment of the setting with a schedule that moves, evaluations every 10 steps, and
/// checkpoints every `every` steps.
zerolab::Experiment resumable(const Setting& setting, int64_t every, bool async = false);
/// For titles: as title(setting), and whether it saves behind.
std::string title(const Setting& setting, bool async);
/// The setting with every strategy that is installed. One that groups ranks is there once more on 4
/// ranks: replicas of groups of 2 in which optimizer states alone are sharded.
std::vector<Setting> all_strategies(const Setting& setting);

/// Whole tensors of a saved checkpoint.
Tensors saved_tensors(const std::filesystem::path& run, int64_t step);
zerolab::TrainingPoint saved_point(const std::filesystem::path& run, int64_t step);

/// The steps of `part` are the last ones of `whole`, to the last bit: metrics that do not tell
/// time, and samples.
void check_same_steps(const History& whole, const History& part);
void check_same_point(const zerolab::TrainingPoint& a, const zerolab::TrainingPoint& b);
/// To the last bit.
void check_same_bits(const Tensors& a, const Tensors& b);
/// The end of `whole`, to the last bit: steps, point, state.
void check_same_end(const History& whole, const History& part);
