#include "train/checkpointer.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <sys/resource.h>
#include <unistd.h>

#include "zerolab/error.h"

#include "store/element_values.h"
#include "store/sessions.h"
#include "train/exchange.h"
#include "train/saved_state.h"

namespace zerolab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

/// Outcomes of a rank's part, as texts that ranks exchange: a letter, and what belongs to it.
constexpr char kDone = 'S', kFailed = 'E', kDiverged = 'D';

/// Adds the time of a scope.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    const double passed = std::chrono::duration<double>(Clock::now() - started_).count();
    seconds_ = (seconds_ == seconds_ ? seconds_ : 0) + passed;
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  Clock::time_point started_ = Clock::now();
};

/// The writer's thread gives way to training.
void lower_priority() {
  constexpr int kNice = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);  // Linux: of the thread alone
}

/// What `work` says, or why it failed.
template <class Work>
std::string outcome_of(const Work& work) try {
  return work();
} catch (const DivergedError& error) {
  return kDiverged + std::string(error.what());
} catch (const std::exception& error) {
  return kFailed + std::string(error.what());
}

}  // namespace

size_t Checkpointer::Source::bytes() const {
  size_t total = 0;
  for (const at::Tensor& tensor : tensors) total += tensor.nbytes();
  return total;
}

/// Copies `length` elements, which `data` points to, and lets it point to the copy. Returns what
/// comes after it.
std::byte* Checkpointer::Source::move(const void*& data, int64_t length, TensorDtype dtype,
                                      std::byte* memory) {
  const auto size = static_cast<size_t>(length * dtype_size(dtype));
  std::memcpy(memory, data, size);
  data = memory;
  return memory + size;
}

Checkpointer::Checkpointer(CheckpointerSettings settings, Communicator& ranks, Sharding& sharding,
                           const Parameters& parameters, FileLayer& files)
    : settings_(std::move(settings)),
      ranks_(ranks),
      sharding_(sharding),
      parameters_(parameters),
      files_(files),
      folder_(settings_.run, files),
      times_{kNothing} {}

Checkpointer::~Checkpointer() {
  if (job_.valid()) job_.wait();
}

/// Which parts are this rank's never changes while a run goes on.
void Checkpointer::plan() {
  WholeState state(training_state(sharding_, parameters_), ranks_);
  parts_ = plan_save(state, ranks_.rank(), ranks_.size());
  tensors_ = state.tensors();
  planned_ = true;
}

Checkpointer::Source Checkpointer::source() {
  Source source;
  const std::vector<StatePiece> held = training_state(sharding_, parameters_);
  for (const SavePart& part : parts_) {
    const WholeTensor& tensor = tensors_[part.tensor];
    const auto piece = std::find_if(held.begin(), held.end(), [&](const StatePiece& p) {
      return p.parameter == tensor.parameter && p.state == tensor.state &&
             p.offset <= part.offset && part.offset + part.length <= p.offset + p.length;
    });
    if (piece == held.end()) {
      throw PluginError("the sharding strategy holds " +
                        tensor_title(tensor.parameter, tensor.state) +
                        " in other pieces than before");
    }
    source.tensors.push_back(piece->data.narrow(0, part.offset - piece->offset, part.length));
    source.pieces.push_back({{tensor.parameter, tensor.state, piece->shape,
                              stored_dtype(piece->data.scalar_type()), part.offset, part.length},
                             source.tensors.back().const_data_ptr()});
  }
  for (const LocalState& state : sharding_.local_state()) {
    source.tensors.push_back(state.data);
    source.local.push_back(
        {{state.name, stored_dtype(state.data.scalar_type()), state.data.numel()},
         state.data.const_data_ptr()});
  }
  return source;
}

void Checkpointer::save(const TrainingPoint& point, Need need) {
  const Stopwatch stall(times_.stalled);
  complete();  // one at a time
  started_ = Clock::now();
  point_ = point;
  need_ = need;
  if (!planned_) plan();
  const std::string outcome = outcome_of([&] {
    if (ranks_.rank() == 0) folder_.begin(point.step);
    return std::string(1, kDone);
  });
  const std::string first = gather_texts(ranks_, outcome).front();
  if (first.front() != kDone) return fail(first);
  start_writing();
  if (!settings_.config.async) complete();
}

void Checkpointer::start_writing() {
  Source mine = source();
  std::byte* memory = nullptr;
  if (settings_.config.async) {
    if (copy_bytes_ < mine.bytes()) {
      copy_bytes_ = mine.bytes();
      copy_.reset(new std::byte[copy_bytes_]);  // not filled: pages come as they are written
    }
    memory = copy_.get();
    // At once: the next backward may change it.
    for (LocalData& state : mine.local) {
      memory = Source::move(state.data, state.info.length, state.info.dtype, memory);
    }
  }
  const bool behind = memory != nullptr;
  std::promise<void> copied;
  copied_ = copied.get_future().share();
  phase_ = Phase::kWriting;
  job_ = std::async(std::launch::async, [this, memory, behind, mine = std::move(mine),
                                         copied = std::move(copied)]() mutable {
    for (PieceData& piece : mine.pieces) {
      if (memory == nullptr) break;
      memory = Source::move(piece.data, piece.info.length, piece.info.dtype, memory);
    }
    copied.set_value();
    if (behind) lower_priority();
    return outcome_of([&] { return write_file(mine); });
  });
}

std::string Checkpointer::write_file(const Source& source) const {
  for (const PieceData& piece : source.pieces) {
    const int64_t at = first_not_finite(piece.info.dtype, piece.data, piece.info.length);
    if (at < 0) continue;
    throw DivergedError("no checkpoint of step " + std::to_string(point_.step) +
                        " is published: element " + std::to_string(piece.info.offset + at) +
                        " of " + tensor_title(piece.info.parameter, piece.info.state) +
                        " is not finite on rank " + std::to_string(ranks_.rank()));
  }
  const std::filesystem::path file =
      folder_.partial(point_.step) / CheckpointFolder::rank_file_name(ranks_.rank());
  const FileLabel label{point_.step, ranks_.rank(), ranks_.size()};
  return kDone +
         write_sealed_file(write_checkpoint_file(files_, file, label, source.pieces, source.local));
}

std::string Checkpointer::publish(CheckpointManifest manifest) {
  if (settings_.before_publishing) settings_.before_publishing();
  folder_.publish(std::move(manifest), settings_.texts);
  const CheckpointConfig& config = settings_.config;
  try {
    folder_.prune({config.keep_last, config.keep_every, !config.keep_best.empty()});
  } catch (const StoreError& error) {  // the new one is there all the same
    if (settings_.tell) settings_.tell(error.what());
  }
  return std::string(1, kDone);
}

void Checkpointer::before_update() {
  if (!copied_.valid()) return;
  if (copied_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    const Stopwatch stall(times_.stalled);
    copied_.wait();
  }
  copied_ = {};
}

double Checkpointer::vote() const {
  if (phase_ == Phase::kIdle) return 0;
  if (!job_.valid()) return 1;  // nothing to do in this phase
  return job_.wait_for(std::chrono::seconds(0)) == std::future_status::ready ? 1 : 0;
}

void Checkpointer::go_on(const std::vector<double>& votes) {
  if (phase_ == Phase::kIdle) return;
  if (std::count(votes.begin(), votes.end(), 0) > 0) return;
  const Stopwatch stall(times_.stalled);
  phase_ == Phase::kWriting ? collect() : conclude();
}

void Checkpointer::finish() {
  if (phase_ == Phase::kIdle) return;
  const Stopwatch stall(times_.stalled);
  complete();
}

void Checkpointer::complete() {
  if (phase_ == Phase::kWriting) collect();
  if (phase_ == Phase::kPublishing) conclude();
}

std::string Checkpointer::outcome_of_job() {
  while (job_.wait_for(std::chrono::seconds(1)) != std::future_status::ready) {
    if (settings_.alive) settings_.alive();
  }
  return job_.get();
}

/// All files are written, or one is not.
void Checkpointer::collect() {
  const std::vector<std::string> outcomes = gather_texts(ranks_, outcome_of_job());
  copied_ = {};
  for (const char kind : {kDiverged, kFailed}) {
    for (const std::string& outcome : outcomes) {
      if (outcome.front() != kind) continue;
      if (ranks_.rank() == 0) folder_.abandon(point_.step);
      return fail(outcome);
    }
  }
  phase_ = Phase::kPublishing;
  if (ranks_.rank() != 0) return;
  CheckpointManifest manifest = settings_.manifest;
  manifest.point = point_;
  manifest.created = utc_now();
  for (const std::string& outcome : outcomes) {
    manifest.files.push_back(parse_sealed_file(outcome.substr(1)));
  }
  const bool behind = settings_.config.async;
  job_ = std::async(std::launch::async, [this, behind, manifest = std::move(manifest)]() mutable {
    if (behind) lower_priority();
    return outcome_of([&] { return publish(std::move(manifest)); });
  });
}

/// The manifest is there, or is not.
void Checkpointer::conclude() {
  const std::string mine = ranks_.rank() == 0 ? outcome_of_job() : std::string();
  const std::string outcome = gather_texts(ranks_, mine).front();
  phase_ = Phase::kIdle;
  if (outcome.front() != kDone) return fail(outcome);
  ++times_.published;
  times_.written += std::chrono::duration<double>(Clock::now() - started_).count();
  if (ranks_.rank() == 0 && settings_.published) settings_.published(point_.step);
}

void Checkpointer::fail(const std::string& outcome) {
  phase_ = Phase::kIdle;
  const std::string cause = outcome.substr(1);
  if (outcome.front() == kDiverged) throw DivergedError(cause);
  if (settings_.config.on_error == "stop" || need_ == Need::kToGoOn) throw StoreError(cause);
  if (ranks_.rank() != 0 || !settings_.tell) return;
  settings_.tell("the checkpoint of step " + std::to_string(point_.step) +
                 " is not there, and training goes on (checkpoint.on_error): " + cause);
}

Checkpointer::Times Checkpointer::take_times() {
  return std::exchange(times_, {kNothing});
}

}  // namespace zerolab
