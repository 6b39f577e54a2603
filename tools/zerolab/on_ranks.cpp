#include "on_ranks.h"

#include <filesystem>

#include <CLI/CLI.hpp>

#include "zerolab/error.h"

#include "train/rank_session.h"

namespace zerolab {
namespace {

int launch(int num_ranks, const RankFlags& flags, const CommandLine& line) {
  LaunchOptions options;
  options.num_ranks = num_ranks;
  options.port = flags.port;
  options.restarts = flags.restarts;
  options.command = line.arguments;
  options.command[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  return launch_local_ranks(options);
}

}  // namespace

void add_rank_flags(CLI::App& verb, RankFlags& flags) {
  flags.ranks = verb.get_option("--ranks");
  verb.add_option("--port", flags.port, "port on which local ranks meet (default: any free one)")
      ->check(CLI::Range(0, 65535))
      ->type_name("PORT");
}

ExperimentRequest request_from(const ExperimentFlags& flags) {
  ExperimentRequest request{flags.file, flags.overrides, plugin_search(flags.plugins)};
  request.search.trust_experiment = flags.trust_plugin_path;
  return request;
}

int on_ranks(const ExperimentFlags& experiment, const RankFlags& flags, const CommandLine& line,
             const std::function<void()>& check,
             const std::function<int(const RankEnvironment& environment)>& rank) {
  const int ranks = experiment.ranks;
  if (ranks < 1) throw ConfigError("--ranks must be at least 1, is " + std::to_string(ranks) + ".");
  const RankEnvironment environment = read_rank_environment();
  // Whoever restarts a rank that died has to be another process.
  if (environment.source == "single" && (ranks > 1 || flags.restarts > 0)) {
    check();
    return launch(ranks, flags, line);
  }
  if (environment.source == "single") check();
  if (flags.ranks->count() > 0 && environment.size != ranks) {
    throw ConfigError("--ranks says " + std::to_string(ranks) + ", but " + environment.source +
                      " started " + std::to_string(environment.size) +
                      " ranks; leave --ranks out or make them agree.");
  }
  return rank(environment);
}

}  // namespace zerolab
