#pragma once
// Saves training: every rank its file, then one rank the manifest. With `async`, copying and
// writing go on beside the next steps, and training waits only where it would change what is still
// being copied.
//
// Order: save() at the edge of a step. In the steps after it, before_update() before anything
// changes the state; vote() goes into what ranks exchange once a step anyway, and go_on() hears all
// votes at the step's end, so that every rank takes the same turn. finish() before the end.
// Ranks: collective, except where it says otherwise.
// Errors: with on_error "stop", or for one that the run needs: StoreError on every rank with the
// cause of the first that failed; with "continue" the cause is told and training goes on.
// DivergedError in either case if a value is not finite. The checkpoints before are intact.

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "zerolab/communicator.h"
#include "zerolab/parameters.h"
#include "zerolab/sharding.h"

#include "experiment/experiment.h"
#include "store/checkpoint_folder.h"
#include "train/save_plan.h"
#include "train/whole_state.h"

namespace zerolab {

struct CheckpointerSettings {
  CheckpointConfig config;
  std::filesystem::path run;                               ///< the same folder for every rank
  CheckpointManifest manifest;                             ///< all but the point and the files
  std::vector<std::pair<std::string, std::string>> texts;  ///< rank 0: name and content
  std::function<void()> before_publishing;  ///< rank 0, on the writer's thread: rows to the disk
  std::function<void()> alive;              ///< about once a second while training waits for a disk
  std::function<void(int64_t step)> published;           ///< rank 0, on the training thread
  std::function<void(const std::string& message)> tell;  ///< rank 0, on either
};

class Checkpointer {
 public:
  /// References outlive it; `files` too, tests hand in one that fails.
  Checkpointer(CheckpointerSettings settings, Communicator& ranks, Sharding& sharding,
               const Parameters& parameters, FileLayer& files = real_files());
  /// [local] Waits for this rank's writer. What is not published is lost.
  ~Checkpointer();

  /// What becomes of the run without it: nothing, or this is all that is left of it.
  enum class Need { kOptional, kToGoOn };
  void save(const TrainingPoint& point, Need need = Need::kOptional);
  /// [hot] [local] Returns when nothing is copied any more.
  void before_update();
  /// [hot] [local] 1 when this rank has done its part of what is under way, else 0.
  double vote() const;
  /// [hot] Everyone's votes of one moment.
  void go_on(const std::vector<double>& votes);
  void finish();

  /// [local] Since the last call: seconds that training waited for checkpoints, NaN if it did not;
  /// and the checkpoints that were published, with the seconds from the start of each, added up.
  struct Times {
    double stalled = 0;
    int64_t published = 0;
    double written = 0;
  };
  Times take_times();

 private:
  enum class Phase { kIdle, kWriting, kPublishing };
  /// This rank's part of a checkpoint: in memory that others may change, or in a copy.
  struct Source {
    std::vector<PieceData> pieces;
    std::vector<LocalData> local;
    std::vector<at::Tensor> tensors;  // keep alive what the two point to
    size_t bytes() const;
    static std::byte* move(const void*& data, int64_t length, TensorDtype dtype, std::byte* memory);
  };
  void plan();
  Source source();
  void start_writing();
  void complete();
  std::string outcome_of_job();
  void collect();
  void conclude();
  void fail(const std::string& outcome);
  std::string write_file(const Source& source) const;
  std::string publish(CheckpointManifest manifest);

  CheckpointerSettings settings_;
  Communicator& ranks_;
  Sharding& sharding_;
  const Parameters& parameters_;
  FileLayer& files_;
  CheckpointFolder folder_;
  bool planned_ = false;
  std::vector<SavePart> parts_;       // that this rank writes
  std::vector<WholeTensor> tensors_;  // of the whole, which the parts count
  std::unique_ptr<std::byte[]> copy_;
  size_t copy_bytes_ = 0;

  Phase phase_ = Phase::kIdle;
  TrainingPoint point_;
  Need need_ = Need::kOptional;
  std::shared_future<void> copied_;
  std::chrono::steady_clock::time_point started_;
  Times times_;
  std::future<std::string> job_;  // this rank's part, its outcome as text; last: it ends first
};

}  // namespace zerolab
