#include "train/rank_run.h"

#include <cerrno>
#include <cstdio>
#include <future>
#include <system_error>

#include "zerolab/error.h"
#include "zerolab/log.h"

#include "store/json_text.h"
#include "store/sessions.h"
#include "store/xxh128.h"
#include "train/data_digest.h"
#include "train/exchange.h"
#include "train/recorder.h"

namespace zerolab {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMirrorSeconds = 600, kMirrorSecondsOfStopped = 30;  // at the end of a run

std::string plugin_line(const Experiment& experiment) {
  std::string line;
  for (Kind kind : kKinds) line += (line.empty() ? "" : " ") + experiment.plugin(kind).name;
  return line;
}

/// Which library each plugin came from, so that a run can be traced back to it.
void record_plugins(PluginHost& host, const Experiment& experiment,
                    std::map<std::string, std::string>& environment) {
  for (Kind kind : kKinds) {
    const PluginRecord* record = host.find(kind, experiment.plugin(kind).name);
    if (record == nullptr) continue;
    environment["plugin." + std::string(kind_name(kind))] =
        record->id() + " " + record->version + " " + record->file.string();
  }
}

/// Of the run, restarts included, as far as our launcher says so.
Clock::time_point start_of(const RankEnvironment& environment) {
  if (environment.launched_at_us == 0) return Clock::now();
  return Clock::time_point(std::chrono::microseconds(environment.launched_at_us));
}

}  // namespace

RankRun::RankRun(const RunRequest& request, JoinedRank& joined)
    : request_(request),
      joined_(joined),
      experiment_(joined.experiment),
      signals_(joined.world.environment().source == "single"),
      started_(start_of(joined.world.environment())),
      plugins_(make_plugins(joined.host, experiment_)),
      trainer_(experiment_, plugins_, joined.ranks),
      data_digest_(data_digest(*plugins_.data, experiment_.batch.sequence_length)),
      loader_(joined, trainer_, data_digest_),
      description_{experiment_.name, "", plugin_line(experiment_), joined.ranks.size(),
                   joined.threads} {
  trainer_.set_pulse(
      [this](int64_t step, const char* phase) { joined_.world.pulse().beat(step, phase); });
}

RankRun::~RankRun() = default;

std::FILE* RankRun::out() const {
  return request_.json ? stderr : stdout;
}

RankOutcome RankRun::run() {
  const bool loaded = request_.start != RunRequest::Start::kNew && load();
  if (!loaded && !experiment_.init_from.empty()) load_initial();
  open_folder();
  std::unique_ptr<TrainingObserver> observer = std::make_unique<SilentObserver>();
  if (is_first_rank()) {
    print_header(out(), description_, trainer_.parameters().total_numel(), experiment_.steps);
    tell_start();
    observer = std::make_unique<Recorder>(*folder_, out(), experiment_.steps, loaded_step_);
  }
  checkpoints_ = std::make_unique<Checkpointer>(checkpointer_settings(), joined_.ranks,
                                                trainer_.sharding(), trainer_.parameters());
  joined_.world.watch(experiment_.distributed.stall_timeout_s);
  trainer_.enter("set-up");
  // A fork that breaks off has to have something of its own to go on from.
  if (request_.start == RunRequest::Start::kFork) checkpoints_->save(trainer_.point());
  TrainingLoop loop(experiment_, trainer_,
                    {*observer, checkpoints_.get(), [this] { return stop_requested(); },
                     [this] { return loader_.load_newest(folder_path_); }});
  RunResult result = loop.run();
  const int code = static_cast<int>(result.stopped ? ExitCode::kStopped : ExitCode::kFinished);
  if (is_first_rank()) finish(std::move(result));
  return {code, ""};
}

bool RankRun::stop_requested() const {
  if (StopSignals::requested()) return true;
  if (request_.max_seconds <= 0) return false;
  return std::chrono::duration<double>(Clock::now() - started_).count() >= request_.max_seconds;
}

// ---- where it begins

/// False if the run has no checkpoint, and starts over.
bool RankRun::load() {
  const fs::path& run = request_.from.run;
  const bool fork = request_.start == RunRequest::Start::kFork;
  if (is_first_rank() && !fork) {
    lock_.emplace(run);
    CheckpointFolder(run).recover();
  }
  const int64_t step = loader_.load(request_.from, fork);
  if (step < 0) {
    check_may_start_over();
    loader_.notes().push_back("it has no checkpoint yet: it starts over");
    check_unchanged(experiment_before(request_.from, -1, joined_.host), experiment_, joined_.host,
                    short_path(run));
    return false;
  }
  if (fork && step == experiment_.steps) {
    throw ConfigError("key 'steps': is " + std::to_string(experiment_.steps) +
                      ", and so many were finished when the checkpoint was saved: nothing is left "
                      "to do; set more steps.");
  }
  if (step > experiment_.steps) {
    throw ConfigError("key 'steps': is " + std::to_string(experiment_.steps) +
                      ", but the checkpoint was saved after " + std::to_string(step) +
                      " steps; fork an earlier one, or set more steps.");
  }
  loaded_step_ = step;
  return true;
}

void RankRun::load_initial() {
  initial_ = load_initial_weights({experiment_.init_from, *plugins_.model, trainer_.sharding(),
                                   trainer_.parameters(), [this] { trainer_.enter("loading"); }},
                                  joined_.ranks);
}

/// A run without checkpoints begins anew; a fork began elsewhere, and what a mirror has is not
/// lost.
void RankRun::check_may_start_over() const {
  const fs::path& run = request_.from.run;
  if (request_.start == RunRequest::Start::kFork) throw ConfigError(no_checkpoint_to_fork(run));
  const std::string source = read_sessions(run).front().info.source;
  if (source.find('@') != std::string::npos) {
    throw ConfigError(short_path(run) +
                      ": is a fork that broke off before its first checkpoint; "
                      "fork " +
                      source + " again.");
  }
  const std::string& mirror = experiment_.checkpoint.mirror;
  std::error_code error;
  if (mirror.empty() || fs::exists(run / "checkpoints", error)) return;
  const bool has_rows = fs::file_size(run / "metrics.jsonl", error) > 0;
  if (error || !has_rows) return;
  throw ConfigError(short_path(run) +
                    ": has rows but no checkpoints any more; fetch them with "
                    "--mirror " +
                    mirror + ", or start another run.");
}

void RankRun::tell_start() const {
  if (initial_) {
    const InitialWeights near{short_path(initial_->source), initial_->layout};
    print_line(out(), "initialized from " + near.text());
  }
  const bool fork = request_.start == RunRequest::Start::kFork;
  if (request_.start == RunRequest::Start::kNew) return;
  std::string line = (fork ? "forked from " : "going on with ") + short_path(request_.from.run);
  if (loaded_step_ > 0) line += " after step " + std::to_string(loaded_step_);
  for (const std::string& note : loader_.notes()) line += "\n  note: " + note;
  print_line(out(), line);
}

SessionInfo RankRun::session_info() const {
  SessionInfo info{joined_.ranks.size(), "", loaded_step_};
  const std::string step = std::to_string(loaded_step_);
  if (request_.start == RunRequest::Start::kFork)
    info.source = request_.from.run.string() + "@" + step;
  if (request_.start == RunRequest::Start::kResume) info.source = "step " + step;
  return info;
}

std::map<std::string, std::string> RankRun::environment() const {
  auto environment = collect_environment();
  record_plugins(joined_.host, experiment_, environment);
  environment["ranks"] = std::to_string(description_.num_ranks);
  environment["threads_per_rank"] = std::to_string(description_.threads);
  if (initial_) environment["init_from"] = initial_->text();
  return environment;
}

/// They are of a future that comes again.
void RankRun::remove_later_checkpoints() {
  CheckpointFolder folder(request_.from.run);
  std::string later;
  for (const int64_t step : folder.steps()) {
    if (step > loaded_step_) later += (later.empty() ? "" : ", ") + std::to_string(step);
  }
  if (later.empty()) return;
  loader_.notes().push_back("the checkpoints of later steps are removed: " + later);
  folder.remove_after(loaded_step_);
}

/// Rank 0 makes it, or opens it again; then every rank knows where it is.
void RankRun::open_folder() {
  if (is_first_rank()) {
    environment_ = environment();
    if (request_.start == RunRequest::Start::kResume) {
      // Checkpoints go before the rows that they were saved after: none is ahead of the journal.
      loader_.tell_damaged(request_.from.run, loaded_step_);
      remove_later_checkpoints();
      folder_ = RunFolder::reopen(request_.from.run, loaded_step_, experiment_.resolved_toml,
                                  environment_, session_info(), real_files(), std::move(lock_));
    } else {
      loader_.tell_damaged({}, loaded_step_);
      folder_ = RunFolder::create(request_.run_dir, experiment_.name, experiment_.resolved_toml,
                                  environment_, session_info());
    }
    folder_path_ = folder_->path();
    joined_.world.announce_run_folder(folder_path_.string());
  }
  folder_path_ = gather_texts(joined_.ranks, folder_path_.string()).front();
  description_.run_folder = folder_path_.string();
  if (!is_first_rank()) return;
  const std::string& remote = experiment_.checkpoint.mirror;
  if (remote.empty()) return;
  mirror_ = std::make_unique<Mirror>(remote, folder_path_,
                                     [](const std::string& message) { log::warning(message); });
}

// ---- checkpoints

CheckpointManifest RankRun::manifest_of_run() const {
  CheckpointManifest manifest;
  const BatchConfig& batch = experiment_.batch;
  manifest.run = {experiment_.name,
                  joined_.ranks.size(),
                  joined_.threads,
                  batch.total_batch_size,
                  batch.micro_batch_size,
                  batch.gradient_accumulation_steps,
                  data_digest_};
  for (const Kind kind : kKinds) {
    const PluginRecord* record = joined_.host.find(kind, experiment_.plugin(kind).name);
    if (record == nullptr) continue;
    manifest.plugins[std::string(kind_name(kind))] = {record->id(), record->version,
                                                      xxh128_of_file(record->file)};
  }
  return manifest;
}

CheckpointerSettings RankRun::checkpointer_settings() {
  CheckpointerSettings settings;
  settings.config = experiment_.checkpoint;
  settings.run = folder_path_;
  settings.alive = [this] { trainer_.enter("saving"); };
  if (!is_first_rank()) return settings;
  settings.manifest = manifest_of_run();
  settings.texts = {{kConfigName, experiment_.resolved_toml},
                    {kEnvironmentName, json_object(environment_)}};
  settings.before_publishing = [this] { folder_->sync(); };
  settings.published = [this](int64_t step) {
    if (mirror_) mirror_->push(step);
  };
  settings.tell = [](const std::string& message) { log::warning(message); };
  return settings;
}

// ---- the end

/// A slow mirror is not a rank that is stuck. Who stopped the run has no time for it, and who asks
/// to stop now does not want to wait.
void RankRun::finish_mirror(bool stopped) {
  const double seconds = stopped ? kMirrorSecondsOfStopped : kMirrorSeconds;
  const auto done = std::async(std::launch::async, [this, stopped, seconds] {
    mirror_->finish(seconds, [stopped] { return !stopped && StopSignals::requested(); });
  });
  print_line(out(), "waiting for the mirror " + experiment_.checkpoint.mirror);
  while (done.wait_for(std::chrono::seconds(1)) != std::future_status::ready) {
    trainer_.enter("mirroring");
  }
}

void RankRun::finish(RunResult result) {
  if (result.last.step == 0) {  // no step was left
    result.last = last_recorded_step(folder_path_ / "metrics.jsonl");
    result.val_loss = result.last.val_loss;
  }
  result.stopped ? folder_->stop() : folder_->finish(store_summary(result));
  print_summary(out(), description_, result);
  if (mirror_) finish_mirror(result.stopped);
  if (!request_.json) return;
  const std::string json = summary_json(description_, result) + "\n";
  const bool written = std::fputs(json.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (!written && errno != EPIPE) {  // a reader that went away has what it wanted
    throw Error("the summary cannot be written to standard output; it is in " +
                (folder_path_ / "summary.json").string());
  }
}

}  // namespace zerolab
