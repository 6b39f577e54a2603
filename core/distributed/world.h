#pragma once
// Joining the ranks of a run: who am I, where do we meet, and the communicator between us.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zerolab/communicator.h"

namespace zerolab {

/// Where a process stands in a run, from --ranks' own launcher, torchrun, Slurm or Open MPI; a lone process otherwise.
struct RankEnvironment {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  ///< on this machine
  std::string address = "127.0.0.1";
  int port = 0;
  std::string source = "single";       ///< "zerolab", "torchrun", "slurm", "openmpi", "single"
};

/// Reads the environment. Errors: ConfigError for contradictory or unparsable variables.
RankEnvironment read_rank_environment();

struct WorldOptions {
  double timeout_s = 1800;        ///< a collective that takes longer is a PeerError
  bool check_collectives = true;
  std::string device = "cpu";     ///< "cuda": the NCCL backend from its own shared library
};

/// The ranks of a run, joined. Leaving (the destructor) waits for nobody when something failed.
class World {
 public:
  /// [collective] Meets the others. Errors: ConfigError for a port in use; PeerError if they do not come.
  static std::unique_ptr<World> join(const RankEnvironment& environment, const WorldOptions& options);
  virtual ~World();
  virtual Communicator& communicator() = 0;
  virtual const RankEnvironment& environment() const = 0;
  /// Tells the others (through the store) why this rank fails; the first one to say so wins.
  virtual void report_failure(int exit_code, const std::string& message) = 0;
  /// The first failure that any rank reported: its message, with "rank N: " before it.
  virtual std::optional<std::string> reported_failure() = 0;
  /// [collective] A clean end: everyone waits for everyone.
  virtual void leave() = 0;
};

/// Runs `body(communicator)` on `num_ranks` threads of this process, joined through Gloo on the loopback. For tests: the first
/// exception is rethrown after all have ended.
void run_on_threads(int num_ranks, const std::function<void(Communicator& world)>& body);

struct LaunchOptions {
  int num_ranks = 1;
  int port = 0;                           ///< 0: any free one
  std::vector<std::string> command;       ///< program and arguments that every rank runs
};

/// Starts the local ranks of `--ranks N`, each in its own process group with a parent-death signal, waits for them, and returns
/// the run's exit code. When one fails, prints the first cause once and stops the others within two seconds. SIGINT and
/// SIGTERM are passed on once; a second SIGINT ends everything.
int launch_local_ranks(const LaunchOptions& options);

}  // namespace zerolab
