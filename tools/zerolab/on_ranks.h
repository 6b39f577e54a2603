#pragma once
// Verbs that train run on ranks: in this process, under another launcher, or in processes of our
// own.

#include <functional>

#include "distributed/world.h"
#include "verbs.h"

namespace zerolab {

struct RankFlags {
  const CLI::Option* ranks = nullptr;  ///< --ranks, which knows whether it was given
  int port = 0;
  int restarts = 0;
};
/// --port. After add_experiment_flags().
void add_rank_flags(CLI::App& verb, RankFlags& flags);

/// The experiment, its overrides and the search path as a rank needs them.
struct ExperimentRequest;
ExperimentRequest request_from(const ExperimentFlags& flags);

/// Runs `rank` if this process is one; else `check` (everything that can be known before a process
/// starts, so that it is said once and nothing is left behind), then as many copies of this command
/// as --ranks says. Returns the exit code. Errors: ConfigError if --ranks and a launcher disagree;
/// what the two throw.
int on_ranks(const ExperimentFlags& experiment, const RankFlags& flags, const CommandLine& line,
             const std::function<void()>& check,
             const std::function<int(const RankEnvironment& environment)>& rank);

}  // namespace zerolab
