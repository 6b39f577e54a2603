#include "train/session.h"

#include <cerrno>
#include <cstdio>

#include "zerolab/error.h"

#include "store/run_folder.h"
#include "train/byte_report.h"
#include "train/progress.h"
#include "train/trainer.h"

namespace zerolab {
namespace {

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
                     {"peak_memory_bytes", static_cast<double>(r.last.peak_memory_bytes)},
                     {"peak_tensor_bytes", static_cast<double>(r.last.peak_tensor_bytes)}};
  for (auto& number : byte_numbers(r)) summary.numbers.push_back(std::move(number));
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

}  // namespace

void check_before_launch(const RunRequest& request, int num_ranks) {
  const ExperimentFile file =
      ExperimentFile::load(request.source.experiment, request.source.overrides);
  PluginHost host(search_for(request.source, file));
  resolve_for_training(file, host, num_ranks);
}

int run_rank(const RunRequest& request, const RankEnvironment& environment) {
  return run_as_rank(request.source, environment, [&](JoinedRank& joined) {
    const Experiment& experiment = joined.experiment;
    TrainingPlugins plugins = make_plugins(joined.host, experiment);
    Communicator& ranks = joined.ranks;
    Trainer trainer(experiment, plugins, ranks);
    if (ranks.rank() == 0) {
      run_as_rank_zero(
          request, joined.host, experiment, trainer,
          {experiment.name, "", plugin_line(experiment), ranks.size(), joined.threads});
    } else {
      SilentObserver silent;
      trainer.run(silent);
    }
    return std::string();
  });
}

}  // namespace zerolab
