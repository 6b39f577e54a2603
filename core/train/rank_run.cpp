#include "train/rank_run.h"

#include <cerrno>
#include <cstdio>
#include <future>
#include <system_error>

#include "zerolab/error.h"
#include "zerolab/log.h"

#include "store/checkpoint_reader.h"
#include "store/json_text.h"
#include "store/sessions.h"
#include "store/xxh128.h"
#include "train/exchange.h"
#include "train/recorder.h"
#include "train/saved_state.h"

namespace zerolab {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMirrorSeconds = 600;  // at the end of a run

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

std::string short_path(const fs::path& path) {
  std::error_code error;
  const fs::path near = fs::proximate(path, error);
  return (error ? path : near).string();
}

}  // namespace

Experiment experiment_before(const CheckpointName& name, int64_t step, PluginHost& host) {
  const CheckpointFolder folder(name.run);
  const bool saved = step >= 0;
  fs::path config = name.run / kConfigName;
  int ranks = saved_run(name).ranks;
  if (saved) {
    config = folder.path(step) / kConfigName;
    folder.text(step, kConfigName);  // as it was saved, or an error
    ranks = folder.manifest(step).run.ranks;
  }
  return ExperimentFile::load(config, {}).resolve(host, ranks);
}

RankRun::RankRun(const RunRequest& request, JoinedRank& joined)
    : request_(request),
      joined_(joined),
      experiment_(joined.experiment),
      signals_(joined.world.environment().source == "single"),
      started_(start_of(joined.world.environment())),
      plugins_(make_plugins(joined.host, experiment_)),
      trainer_(experiment_, plugins_, joined.ranks),
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
  if (request_.start != RunRequest::Start::kNew) load();
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
                     [this] { return load_newest(); }});
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

void RankRun::load() {
  const int64_t step = find_whole_checkpoint();
  const bool fork = request_.start == RunRequest::Start::kFork;
  if (step < 0) {
    check_may_start_over();
    notes_.push_back("it has no checkpoint yet: it starts over");
    check_unchanged(experiment_before(request_.from, -1, joined_.host), experiment_, joined_.host,
                    short_path(request_.from.run));
    return;
  }
  const Experiment before = experiment_before(request_.from, step, joined_.host);
  if (!fork) {
    notes_ = check_unchanged(before, experiment_, joined_.host, short_path(request_.from.run));
  }
  load_step(request_.from.run, step, before, fork);
  if (fork && trainer_.finished_steps() == experiment_.steps) {
    throw ConfigError("key 'steps': is " + std::to_string(experiment_.steps) +
                      ", and so many were finished when the checkpoint was saved: nothing is left "
                      "to do; set more steps.");
  }
  if (trainer_.finished_steps() > experiment_.steps) {
    throw ConfigError("key 'steps': is " + std::to_string(experiment_.steps) +
                      ", but the checkpoint was saved after " + std::to_string(step) +
                      " steps; fork an earlier one, or set more steps.");
  }
  loaded_step_ = step;
}

/// A run without checkpoints begins anew; a fork began elsewhere, and what a mirror has is not lost.
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

/// -1 if the run has none at all.
int64_t RankRun::find_whole_checkpoint() {
  const fs::path& run = request_.from.run;
  const CheckpointFolder folder(run);
  std::vector<int64_t> candidates;
  if (is_first_rank()) {
    if (request_.start == RunRequest::Start::kResume) {
      lock_.emplace(run);
      CheckpointFolder(run).recover();
    }
    candidates = candidate_steps(request_.from);
  }
  const auto step = choose_whole(
      run, candidates, joined_.ranks,
      [this](int64_t step, const std::string& damage) {
        if (!request_.from.newest()) throw StoreError(damage);
        damaged_.emplace_back(step, damage);
      },
      [this] { trainer_.enter("loading"); });
  if (!step && !damaged_.empty()) {
    throw StoreError(short_path(run) + ": none of its " + std::to_string(damaged_.size()) +
                     " checkpoints is whole; fetch one from a mirror, or start another run (" +
                     damaged_.front().second + ")");
  }
  return step.value_or(-1);
}

/// Out of the way of the checkpoints to come, and kept to be looked at; another's run is left alone.
void RankRun::tell_damaged(const fs::path& own_run) const {
  const CheckpointFolder folder(own_run);
  for (const auto& [step, damage] : damaged_) {
    std::string what =
        "the checkpoint of step " + std::to_string(step) + " is damaged and not used";
    if (!own_run.empty()) {
      fs::path aside = folder.path(step);
      aside += ".damaged";
      std::error_code error;
      fs::remove_all(aside, error);
      fs::rename(folder.path(step), aside, error);
      if (!error) what += " (it is now " + short_path(aside) + ")";
    }
    log::warning(what + ": " + damage);
  }
}

void RankRun::load_step(const fs::path& run, int64_t step, const Experiment& before, bool fork) {
  const CheckpointReader checkpoint(CheckpointFolder(run).path(step));
  const CheckpointManifest& manifest = checkpoint.manifest();
  const PluginChoice &was = before.plugin(Kind::kSharding),
                     &is = experiment_.plugin(Kind::kSharding);
  const bool same_owners = manifest.run.ranks == joined_.ranks.size() && was.name == is.name &&
                           was.options == is.options;
  for (std::string& note :
       load_state({checkpoint, trainer_.sharding(), trainer_.parameters(), trainer_.optimizer(),
                   fork, same_owners, [this] { trainer_.enter("loading"); }},
                  joined_.ranks)) {
    notes_.push_back(std::move(note));
  }
  TrainingPoint point = manifest.point;
  point.seed = experiment_.seed;  // another one in a fork
  trainer_.go_on(std::move(point));
  note_differences(manifest, before);
}

/// What keeps results within rounding, but not to the last bit.
void RankRun::note_differences(const CheckpointManifest& manifest, const Experiment& before) {
  const SavedRun& saved = manifest.run;
  const auto change = [](int64_t was, int64_t is) {
    return std::to_string(was) + " to " + std::to_string(is);
  };
  if (saved.threads_per_rank != joined_.threads) {
    notes_.push_back("threads per rank go from " + change(saved.threads_per_rank, joined_.threads) +
                     ": kernels may add in another order, so results agree within rounding, not "
                     "bit by bit");
  }
  if (saved.micro_batch_size != experiment_.batch.micro_batch_size) {
    notes_.push_back("micro_batch_size goes from " +
                     change(saved.micro_batch_size, experiment_.batch.micro_batch_size) +
                     ": results agree within rounding, not bit by bit");
  }
  for (const Kind kind : kKinds) {
    const auto found = manifest.plugins.find(std::string(kind_name(kind)));
    const PluginRecord* record = joined_.host.find(kind, experiment_.plugin(kind).name);
    const bool same_plugin = before.plugin(kind).name == experiment_.plugin(kind).name;
    if (found == manifest.plugins.end() || record == nullptr || !same_plugin) continue;
    if (found->second.version == record->version) continue;
    notes_.push_back(record->id() + " is version " + record->version + ", and was " +
                     found->second.version);
  }
}

void RankRun::tell_start() const {
  const bool fork = request_.start == RunRequest::Start::kFork;
  if (request_.start == RunRequest::Start::kNew) return;
  std::string line = (fork ? "forked from " : "going on with ") + short_path(request_.from.run);
  if (loaded_step_ > 0) line += " after step " + std::to_string(loaded_step_);
  for (const std::string& note : notes_) line += "\n  note: " + note;
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
  notes_.push_back("the checkpoints of later steps are removed: " + later);
  folder.remove_after(loaded_step_);
}

/// Rank 0 makes it, or opens it again; then every rank knows where it is.
void RankRun::open_folder() {
  if (is_first_rank()) {
    environment_ = environment();
    if (request_.start == RunRequest::Start::kResume) {
      // Checkpoints go before the rows that they were saved after: none is ahead of the journal.
      tell_damaged(request_.from.run);
      remove_later_checkpoints();
      folder_ = RunFolder::reopen(request_.from.run, loaded_step_, experiment_.resolved_toml,
                                  environment_, session_info(), real_files(), std::move(lock_));
    } else {
      tell_damaged({});
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
  manifest.run = {experiment_.name,       joined_.ranks.size(),
                  joined_.threads,        batch.total_batch_size,
                  batch.micro_batch_size, batch.gradient_accumulation_steps};
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

bool RankRun::load_newest() {
  std::vector<int64_t> candidates;
  if (is_first_rank()) candidates = candidate_steps({folder_path_});
  damaged_.clear();
  const auto step = choose_whole(
      folder_path_, candidates, joined_.ranks,
      [this](int64_t step, const std::string& damage) { damaged_.emplace_back(step, damage); },
      [this] { trainer_.enter("loading"); });
  if (is_first_rank()) tell_damaged(folder_path_);
  if (!step) return false;
  load_step(folder_path_, *step, experiment_, false);
  return true;
}

// ---- the end

/// A slow mirror is not a rank that is stuck.
void RankRun::finish_mirror() {
  const auto done = std::async(std::launch::async, [this] { mirror_->finish(kMirrorSeconds); });
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
  if (mirror_) finish_mirror();
  if (!request_.json) return;
  const std::string json = summary_json(description_, result) + "\n";
  const bool written = std::fputs(json.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (!written && errno != EPIPE) {  // a reader that went away has what it wanted
    throw Error("the summary cannot be written to standard output; it is in " +
                (folder_path_ / "summary.json").string());
  }
}

}  // namespace zerolab
