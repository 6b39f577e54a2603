// zerolab run: trains. With --ranks N it starts N processes of itself; under another launcher it is
// one of theirs.

#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>

#include "zerolab/error.h"

#include "distributed/world.h"
#include "train/session.h"
#include "verbs.h"

namespace zerolab {
namespace {

struct RunFlags {
  ExperimentFlags experiment;
  bool ranks_given = false;
  std::string run_dir;
  int port = 0;
  bool json = false;
};

RunRequest request_from(const RunFlags& flags) {
  RunRequest request;
  request.experiment = flags.experiment.file;
  request.overrides = flags.experiment.overrides;
  request.search = plugin_search(flags.experiment.plugins);
  request.search.trust_experiment = flags.experiment.trust_plugin_path;
  request.run_dir = flags.run_dir;
  request.json = flags.json;
  return request;
}

/// Everything that can be known before a process starts is checked here, so that it is said once
/// and nothing is left behind.
int launch(const RunFlags& flags, const RunRequest& request, const CommandLine& line) {
  check_before_launch(request, flags.experiment.ranks);
  LaunchOptions options;
  options.num_ranks = flags.experiment.ranks;
  options.port = flags.port;
  options.command = line.arguments;
  options.command[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  return launch_local_ranks(options);
}

int run(const RunFlags& flags, const CommandLine& line) {
  const int ranks = flags.experiment.ranks;
  if (ranks < 1) throw ConfigError("--ranks must be at least 1, is " + std::to_string(ranks) + ".");
  const RunRequest request = request_from(flags);
  const RankEnvironment environment = read_rank_environment();
  if (environment.source == "single" && ranks > 1) return launch(flags, request, line);
  if (flags.ranks_given && environment.size != ranks) {
    throw ConfigError("--ranks says " + std::to_string(ranks) + ", but " + environment.source +
                      " started " + std::to_string(environment.size) +
                      " ranks; leave --ranks out or make them agree.");
  }
  return run_rank(request, environment);
}

}  // namespace

void add_run(CLI::App& app, CommandLine& line) {
  CLI::App* const verb = app.add_subcommand("run", "Train as an experiment file says");
  const auto flags = std::make_shared<RunFlags>();
  add_experiment_flags(*verb, flags->experiment);
  verb->add_option("--run-dir", flags->run_dir,
                   "write the run here; must not exist (default: runs/NAME-N)")
      ->type_name("DIR");
  verb->add_option("--port", flags->port, "port on which local ranks meet (default: any free one)")
      ->check(CLI::Range(0, 65535))
      ->type_name("PORT");
  verb->add_flag("--json", flags->json,
                 "print the summary as JSON; progress goes to standard error");
  verb->footer(
      "Under torchrun, srun or mpirun the rank comes from their environment and --ranks is not "
      "needed.\n\n"
      "Examples:\n"
      "  zerolab run experiment.toml\n"
      "  zerolab run experiment.toml --ranks 2 sharding.plugin=NAME steps=100\n"
      "  zerolab run experiment.toml --run-dir results/first --json > summary.json");
  verb->callback([flags, verb, &line] {
    flags->ranks_given = verb->count("--ranks") > 0;
    line.exit_code = run(*flags, line);
  });
}

}  // namespace zerolab
