// zerolab resume: goes on with a run in its own folder. zerolab fork: starts a new run from a
// checkpoint of another one.

#include <memory>

#include <CLI/CLI.hpp>

#include "zerolab/error.h"

#include "output.h"
#include "training_flags.h"

namespace zerolab {
namespace {

struct ResumeFlags : TrainingFlags {
  std::string mirror;
};

void add_source_flags(CLI::App& verb, TrainingFlags& flags) {
  verb.add_option("run", flags.experiment.file,
                  "the run's folder; RUN@500 or RUN@best for another checkpoint than the newest")
      ->type_name("RUN[@STEP]")
      ->required();
  add_override_flags(verb, flags.experiment);
}

/// As the run was cut, unless --ranks or another launcher says otherwise.
void default_ranks(TrainingFlags& flags, const CheckpointName& from) {
  const RankEnvironment environment = read_rank_environment();
  if (flags.ranks.ranks->count() > 0) return;
  flags.experiment.ranks =
      environment.source == "single" ? saved_run(from).ranks : environment.size;
}

RunRequest request_from_run(TrainingFlags& flags, RunRequest::Start start) {
  RunRequest request = training_request(flags);
  request.source = request_from(flags.experiment);
  request.source.experiment.clear();
  request.start = start;
  request.from = parse_checkpoint_name(flags.experiment.file);
  default_ranks(flags, request.from);
  return request;
}

/// Before any rank starts: those of our launcher find it there.
void fetch(const ResumeFlags& flags) {
  if (flags.mirror.empty()) return;
  const std::string source = read_rank_environment().source;
  if (source == "zerolab") return;
  if (source != "single") {
    throw ConfigError("--mirror: ranks of " + source +
                      " would fetch the run all at once; fetch it first, with --max-time 1s on one "
                      "rank, or use --ranks.");
  }
  const std::string done = fetch_missing(flags.experiment.file, flags.mirror);
  if (!done.empty()) print(done + "\n");
}

int resume(ResumeFlags flags, const CommandLine& line) {
  fetch(flags);
  const RunRequest request = request_from_run(flags, RunRequest::Start::kResume);
  if (is_finished(request.from.run) && request.from.newest()) return tell_finished(request, flags);
  return train(request, flags, line);
}

int fork(TrainingFlags flags, const CommandLine& line) {
  return train(request_from_run(flags, RunRequest::Start::kFork), flags, line);
}

}  // namespace

void add_resume(CLI::App& app, CommandLine& line) {
  CLI::App* const verb = app.add_subcommand(
      "resume", "Go on with a run that was stopped or broke off, as if it never had");
  const auto flags = std::make_shared<ResumeFlags>();
  add_source_flags(*verb, *flags);
  add_training_flags(*verb, *flags);
  verb->add_option("--mirror", flags->mirror,
                   "fetch the run from this remote of rclone if it, or its checkpoint, is not here")
      ->type_name("REMOTE");
  verb->footer(
      "Another sharding strategy or number of ranks may be chosen: on the same ranks the result is "
      "the same to the last bit, on others within rounding (between 1, 2 and 4 ranks of one thread "
      "and with the same micro_batch_size: to the last bit). Values that change results may not "
      "change; fork the run for that.\n"
      "Rows of steps after the checkpoint that it goes on from move to metrics.superseded.jsonl; "
      "checkpoints of later steps are removed.\n\n"
      "Examples:\n"
      "  zerolab resume runs/experiment-1\n"
      "  zerolab resume runs/experiment-1 --ranks 4 sharding.plugin=NAME\n"
      "  zerolab resume runs/experiment-1@500 checkpoint.every=50");
  verb->callback([flags, &line] { line.exit_code = resume(*flags, line); });
}

void add_fork(CLI::App& app, CommandLine& line) {
  CLI::App* const verb =
      app.add_subcommand("fork", "Start a new run from a checkpoint, with any value changed");
  const auto flags = std::make_shared<TrainingFlags>();
  add_source_flags(*verb, *flags);
  add_run_dir_flag(*verb, *flags);
  add_training_flags(*verb, *flags);
  verb->footer(
      "The run that is forked is not touched. Parameters have to fit; optimizer states that the "
      "checkpoint lacks start at zero.\n\n"
      "Examples:\n"
      "  zerolab fork runs/experiment-1 steps=4000\n"
      "  zerolab fork runs/experiment-1@best scheduler.lr=1e-4 name=finer");
  verb->callback([flags, &line] { line.exit_code = fork(*flags, line); });
}

}  // namespace zerolab
