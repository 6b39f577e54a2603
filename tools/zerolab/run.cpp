// zerolab run: trains. With --ranks N it starts N processes of itself; under another launcher it is
// one of theirs.

#include <memory>

#include <CLI/CLI.hpp>

#include "on_ranks.h"
#include "train/session.h"
#include "verbs.h"

namespace zerolab {
namespace {

struct RunFlags {
  ExperimentFlags experiment;
  RankFlags ranks;
  std::string run_dir;
  bool json = false;
};

int run(const RunFlags& flags, const CommandLine& line) {
  const RunRequest request{request_from(flags.experiment), flags.run_dir, flags.json};
  return on_ranks(
      flags.experiment, flags.ranks, line,
      [&] { check_before_launch(request, flags.experiment.ranks); },
      [&](const RankEnvironment& environment) { return run_rank(request, environment); });
}

}  // namespace

void add_run(CLI::App& app, CommandLine& line) {
  CLI::App* const verb = app.add_subcommand("run", "Train as an experiment file says");
  const auto flags = std::make_shared<RunFlags>();
  add_experiment_flags(*verb, flags->experiment);
  verb->add_option("--run-dir", flags->run_dir,
                   "write the run here; must not exist (default: runs/NAME-N)")
      ->type_name("DIR");
  add_rank_flags(*verb, flags->ranks);
  verb->add_flag("--json", flags->json,
                 "print the summary as JSON; progress goes to standard error");
  verb->footer(
      "Under torchrun, srun or mpirun the rank comes from their environment and --ranks is not "
      "needed.\n\n"
      "Examples:\n"
      "  zerolab run experiment.toml\n"
      "  zerolab run experiment.toml --ranks 2 sharding.plugin=NAME steps=100\n"
      "  zerolab run experiment.toml --run-dir results/first --json > summary.json");
  verb->callback([flags, &line] { line.exit_code = run(*flags, line); });
}

}  // namespace zerolab
