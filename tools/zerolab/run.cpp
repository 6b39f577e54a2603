// zerolab run: trains. With --ranks N it starts N processes of itself; under another launcher it is
// one of theirs.

#include <algorithm>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>

#include "zerolab/error.h"

#include "output.h"
#include "store/run_folder.h"
#include "training_flags.h"

namespace zerolab {
namespace {

struct RunFlags : TrainingFlags {
  std::string resume = "never";
};

/// The run that `--resume auto` goes on with; empty if it has to start one.
std::filesystem::path run_to_go_on(const RunFlags& flags, const RunRequest& request) {
  if (!flags.run_dir.empty()) {
    std::error_code error;
    // Whoever made it, or was killed while making it: nothing is in it.
    if (std::filesystem::is_empty(flags.run_dir, error))
      std::filesystem::remove(flags.run_dir, error);
    return std::filesystem::exists(flags.run_dir) ? std::filesystem::path(flags.run_dir)
                                                  : std::filesystem::path();
  }
  const int ranks = std::max(flags.experiment.ranks, read_rank_environment().size);
  return newest_run_of(request.source, ranks).value_or(std::filesystem::path());
}

int run(const RunFlags& flags, const CommandLine& line) {
  RunRequest request = training_request(flags);
  request.source = request_from(flags.experiment);
  if (flags.resume == "auto" && read_rank_environment().restart_of.empty()) {
    const std::filesystem::path folder = run_to_go_on(flags, request);
    const bool finished = !folder.empty() && is_finished(folder);
    if (!folder.empty() && (!finished || !flags.run_dir.empty())) {
      request.start = RunRequest::Start::kResume;
      request.from = parse_checkpoint_name(folder.string());
    }
    if (finished && !flags.run_dir.empty()) return tell_finished(request, flags);
  }
  return train(request, flags, line);
}

}  // namespace

void add_run(CLI::App& app, CommandLine& line) {
  CLI::App* const verb = app.add_subcommand("run", "Train as an experiment file says");
  const auto flags = std::make_shared<RunFlags>();
  add_experiment_flags(*verb, flags->experiment);
  add_run_dir_flag(*verb, *flags);
  add_training_flags(*verb, *flags);
  verb->add_option("--resume", flags->resume,
                   "auto: go on with the run of --run-dir, or with the newest run of this name, if "
                   "it is there and not finished; never")
      ->check(CLI::IsMember({"auto", "never"}))
      ->type_name("WORD");
  verb->footer(
      "Under torchrun, srun or mpirun the rank comes from their environment and --ranks is not "
      "needed.\n"
      "Ctrl-C, SIGTERM, SIGUSR1 and --max-time save a checkpoint and end with exit code 75; a "
      "second "
      "Ctrl-C aborts.\n\n"
      "Examples:\n"
      "  zerolab run experiment.toml\n"
      "  zerolab run experiment.toml --ranks 2 sharding.plugin=NAME steps=100\n"
      "  zerolab run experiment.toml --run-dir results/first --json > summary.json\n"
      "  zerolab run experiment.toml --run-dir results/first --resume auto --max-time 55m");
  verb->callback([flags, &line] { line.exit_code = run(*flags, line); });
}

}  // namespace zerolab
