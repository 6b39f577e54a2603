#pragma once
// A run on one rank: from the plugins to the summary, and all that stands around the training loop
// meanwhile.
// Ranks: collective.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/stop_signals.h"
#include "store/mirror.h"
#include "store/run_folder.h"
#include "train/checkpoint_loader.h"
#include "train/checkpointer.h"
#include "train/initial_weights.h"
#include "train/progress.h"
#include "train/session.h"
#include "train/training_loop.h"

namespace zerolab {

class RankRun {
 public:
  /// References outlive it.
  RankRun(const RunRequest& request, JoinedRank& joined);
  ~RankRun();
  RankRun(const RankRun&) = delete;
  RankRun& operator=(const RankRun&) = delete;

  /// [collective] Loads, trains, saves.
  RankOutcome run();

 private:
  bool is_first_rank() const { return joined_.ranks.rank() == 0; }
  bool load();
  void load_initial();
  void check_may_start_over() const;
  void remove_later_checkpoints();
  void tell_start() const;
  void open_folder();
  SessionInfo session_info() const;
  std::map<std::string, std::string> environment() const;
  CheckpointerSettings checkpointer_settings();
  CheckpointManifest manifest_of_run() const;
  bool stop_requested() const;
  void finish_mirror(bool stopped);
  void finish(RunResult result);
  std::FILE* out() const;

  const RunRequest& request_;
  JoinedRank& joined_;
  const Experiment& experiment_;
  StopSignals signals_;
  std::chrono::steady_clock::time_point started_;
  TrainingPlugins plugins_;
  Trainer trainer_;
  const std::string data_digest_;
  CheckpointLoader loader_;
  int64_t loaded_step_ = 0;
  std::optional<InitialWeights> initial_;
  RunDescription description_;
  std::map<std::string, std::string> environment_;  // rank 0
  std::filesystem::path folder_path_;
  std::optional<FolderLock> lock_;     // rank 0, until the folder is opened
  std::unique_ptr<RunFolder> folder_;  // rank 0
  std::unique_ptr<Mirror> mirror_;     // rank 0, if there is one
  std::unique_ptr<Checkpointer> checkpoints_;
};

}  // namespace zerolab
