#pragma once
// Where a process stands in a run, read from the variables that launchers set. Pure: the
// environment is a function.
//
// Looked for in this order: our own launcher (ZEROLAB_RANK), torchrun (RANK and WORLD_SIZE),
// Open MPI (OMPI_COMM_WORLD_SIZE), Slurm (a job step of several tasks); a lone process
// otherwise. Open MPI comes before Slurm because mpirun inside an allocation shows the variables
// of both.
// Errors: ConfigError that names the variable, its value and what is allowed.

#include <functional>
#include <optional>
#include <string>

#include "distributed/world.h"

namespace zerolab {

using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

RankEnvironment parse_rank_environment(const EnvironmentLookup& lookup);

/// Typed reading of variables; an empty one counts as unset.
class Variables {
 public:
  explicit Variables(EnvironmentLookup lookup) : lookup_(std::move(lookup)) {}
  std::optional<std::string> text(const std::string& name) const;
  /// Errors: ConfigError if it is set and not an integer in [low, high].
  std::optional<int64_t> integer(const std::string& name, int64_t low, int64_t high) const;
  /// Errors: ConfigError if it is not set either; `setter` is the program that sets it.
  int64_t needed_integer(const std::string& name, int64_t low, int64_t high,
                         const std::string& setter) const;
  /// MASTER_PORT, or `otherwise`.
  int port(int otherwise) const;

 private:
  EnvironmentLookup lookup_;
};

/// A port for runs that name none: the same on all ranks, and below the range that systems hand out
/// themselves.
int derived_port(const std::string& key);

/// The step of a Slurm job that this process is a task of; nothing outside of one, or in a step of
/// one task.
std::optional<RankEnvironment> parse_slurm_environment(const Variables& variables);

/// The first host of a Slurm node list ("node[003-008,012],login1": node003).
std::string first_host(const std::string& node_list);

/// Tasks on each node, from Slurm's "2(x3),1": {2, 2, 2, 1}. `name` is for the ConfigError.
std::vector<int> tasks_per_node(const std::string& name, const std::string& text);

}  // namespace zerolab
