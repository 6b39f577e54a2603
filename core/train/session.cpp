#include "train/session.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <new>
#include <thread>

#include <malloc.h>
#include <sched.h>

#include <ATen/Parallel.h>

#include "zerolab/error.h"

#include "distributed/world.h"
#include "store/run_folder.h"
#include "train/progress.h"
#include "train/trainer.h"

namespace zerolab {
namespace {

/// Training frees and allocates the same large blocks every step. Keeping them in the heap instead
/// of giving them back to the kernel saves a page fault for every 4 KiB of them.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
}

/// Cores that this process may use, shared with the other ranks of this machine unless their
/// launcher bound each to its own.
int threads_per_rank(const Experiment& experiment, const RankEnvironment& environment) {
  if (experiment.threads > 0) return static_cast<int>(experiment.threads);
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const auto online = static_cast<int>(std::thread::hardware_concurrency());
  const int usable = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : online;
  const bool own_launcher = environment.source == "zerolab" || environment.source == "single";
  const bool bound = !own_launcher && usable < online;
  return std::max(1, bound ? usable : usable / std::max(1, environment.local_size));
}

TrainingPlugins make_plugins(PluginHost& host, const Experiment& experiment) {
  return {host.create<Data>(experiment),      host.create<Model>(experiment),
          host.create<Optimizer>(experiment), host.create<Scheduler>(experiment),
          host.create<Precision>(experiment), host.create<Sharding>(experiment)};
}

std::string plugin_line(const Experiment& experiment) {
  std::string line;
  for (Kind kind : kKinds) line += (line.empty() ? "" : " ") + experiment.plugin(kind).name;
  return line;
}

/// Rank 0: a row in the store and a line on the screen for each step.
class Recorder : public TrainingObserver {
 public:
  Recorder(RunFolder& folder, std::FILE* out, int64_t steps)
      : folder_(folder), progress_(out, steps) {
    folder.open_metrics(metric_columns());
  }
  void on_step(const StepRecord& record) override {
    folder_.append(metric_row(record));
    progress_.print(record);
  }

 private:
  RunFolder& folder_;
  Progress progress_;
};

class SilentObserver : public TrainingObserver {
 public:
  void on_step(const StepRecord&) override {}
};

RunSummary store_summary(const RunResult& r) {
  RunSummary summary;
  summary.numbers = {{"steps", static_cast<double>(r.last.step)},
                     {"seconds", r.seconds},
                     {"final_loss", r.last.loss},
                     {"val_loss", r.val_loss},
                     {"tokens_per_sec", r.tokens_per_sec},
                     {"skipped_steps", static_cast<double>(r.skipped_steps)},
                     {"parameters", static_cast<double>(r.parameters)},
                     {"parameter_bytes", static_cast<double>(r.parameter_bytes)},
                     {"gradient_bytes", static_cast<double>(r.gradient_bytes)},
                     {"optimizer_bytes", static_cast<double>(r.optimizer_bytes)},
                     {"bucket_bytes", static_cast<double>(r.bucket_bytes)},
                     {"bytes_moved_per_step", static_cast<double>(r.bytes_moved_per_step)},
                     {"peak_memory_bytes", static_cast<double>(r.last.peak_memory_bytes)}};
  summary.texts = {{"status", "finished"}};
  return summary;
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

void run_as_rank_zero(const RunRequest& request, PluginHost& host, const Experiment& experiment,
                      Trainer& trainer, RunDescription description) {
  auto environment = collect_environment();
  record_plugins(host, experiment, environment);
  environment["ranks"] = std::to_string(description.num_ranks);
  environment["threads_per_rank"] = std::to_string(description.threads);
  const auto folder =
      RunFolder::create(request.run_dir, experiment.name, experiment.resolved_toml, environment);
  description.run_folder = folder->path().string();
  std::FILE* out = request.json ? stderr : stdout;
  print_header(out, description, trainer.parameters().total_numel(), experiment.steps);
  Recorder recorder(*folder, out, experiment.steps);
  const RunResult result = trainer.run(recorder);
  folder->finish(store_summary(result));
  print_summary(out, description, result);
  if (!request.json) return;
  const std::string json = summary_json(description, result) + "\n";
  const bool written = std::fputs(json.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (!written && errno != EPIPE) {  // a reader that went away has what it wanted
    throw Error("the summary cannot be written to standard output; it is in " +
                (folder->path() / "summary.json").string());
  }
}

/// The checked experiment.
/// What the file may say but this version cannot do is refused, never passed over.
Experiment resolve(const ExperimentFile& file, PluginHost& host, int num_ranks) {
  Experiment experiment = file.resolve(host, num_ranks);
  if (experiment.device != "cpu") {
    throw ConfigError("key 'device': \"" + experiment.device +
                      "\" cannot be trained on by this version; set device = \"cpu\".");
  }
  if (experiment.checkpoint.every > 0) {
    throw ConfigError(
        "key 'checkpoint.every': this version writes no checkpoints; set it to 0 or leave it out.");
  }
  return experiment;
}

void run_joined(const RunRequest& request, PluginHost& host, const Experiment& experiment,
                World& world) {
  const int threads = threads_per_rank(experiment, world.environment());
  at::set_num_threads(threads);
  TrainingPlugins plugins = make_plugins(host, experiment);
  Communicator& ranks = world.communicator();
  Trainer trainer(experiment, plugins, ranks);
  if (ranks.rank() == 0) {
    run_as_rank_zero(request, host, experiment, trainer,
                     {experiment.name, "", plugin_line(experiment), ranks.size(), threads});
  } else {
    SilentObserver silent;
    trainer.run(silent);
  }
}

PluginSearch search_for(const RunRequest& request, const ExperimentFile& file) {
  PluginSearch search = request.search;
  search.from_experiment = file.plugin_path();
  return search;
}

void train(const RunRequest& request, const RankEnvironment& environment,
           std::unique_ptr<World>& world) {
  const ExperimentFile file = ExperimentFile::load(request.experiment, request.overrides);
  PluginHost host(search_for(request, file));
  const Experiment experiment = resolve(file, host, environment.size);
  WorldOptions options;
  options.check_collectives = experiment.check_collectives;
  options.device = experiment.device;
  world = World::join(environment, options);
  try {
    run_joined(request, host, experiment, *world);
  } catch (const c10::Error& error) {
    throw Error("set-up: " + plain_sentence(error));
  } catch (const std::bad_alloc&) {
    throw Error("out of memory; use a smaller model or a smaller micro_batch_size.");
  }
  world->leave();
}

/// Tells the other ranks and the launcher. True if the launcher prints it.
bool report(World* world, const RankEnvironment& environment, int exit_code,
            const std::string& message) {
  if (world == nullptr) return report_failure_to_launcher(environment, exit_code, message);
  world->report_failure(exit_code, message);
  return environment.source == "zerolab";
}

}  // namespace

void check_before_launch(const RunRequest& request, int num_ranks) {
  const ExperimentFile file = ExperimentFile::load(request.experiment, request.overrides);
  PluginHost host(search_for(request, file));
  resolve(file, host, num_ranks);
}

int run_rank(const RunRequest& request, const RankEnvironment& environment) {
  keep_freed_memory();
  std::unique_ptr<World> world;
  const std::string who =
      environment.size > 1 ? "rank " + std::to_string(environment.rank) : std::string();
  try {
    train(request, environment, world);
  } catch (Error& error) {
    const int code = static_cast<int>(error.exit_code());
    if (report(world.get(), environment, code, error.what())) return code;
    // What broke the connection says more than that it broke.
    const auto cause = world != nullptr && error.exit_code() == ExitCode::kPeer
                           ? world->await_failure(1)
                           : std::nullopt;
    if (cause) throw PeerError(*cause);
    if (!who.empty()) error.in(who);
    throw;
  } catch (const std::exception& error) {
    const int code = static_cast<int>(ExitCode::kError);
    if (report(world.get(), environment, code, error.what())) return code;
    throw;
  }
  return 0;
}

}  // namespace zerolab
