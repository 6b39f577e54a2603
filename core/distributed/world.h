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

/// Where a process stands in a run, from --ranks' own launcher, torchrun, Slurm or Open MPI; a lone
/// process otherwise.
struct RankEnvironment {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  ///< on this machine
  std::string address = "127.0.0.1";
  int port = 0;
  std::string source = "single";    ///< "zerolab", "torchrun", "slurm", "openmpi", "single"
  bool hosts_store = false;         ///< this rank hosts the store that the others meet at
  std::string meeting = "zerolab";  ///< prefix of all keys in the store; differs between restarts
  /// Network interface to use, from ZEROLAB_INTERFACE or GLOO_SOCKET_IFNAME.
  std::string interface;
};

/// Reads the environment. Errors: ConfigError for contradictory or unparsable variables.
RankEnvironment read_rank_environment();

struct WorldOptions {
  double join_timeout_s = 300;  ///< how long ranks wait for each other at the start
  double timeout_s = 1800;      ///< a collective that takes longer is a PeerError
  bool check_collectives = true;
  std::string device = "cpu";  ///< "cuda": the NCCL backend from its own shared library
};

/// The ranks of a run, joined. Leaving (the destructor) waits for nobody when something failed;
/// only the rank that hosts the store stays up to a second, so that the others can read the cause
/// there.
///
/// Who tells the user: ranks whose environment.source is "zerolab" report their failure and print
/// nothing, since the launcher prints the first cause once; ranks of other launchers print it
/// themselves.
class World {
 public:
  /// [collective] Meets the others. Errors: ConfigError for a port in use, or a device without its
  /// backend; PeerError if they do not come.
  static std::unique_ptr<World> join(const RankEnvironment& environment,
                                     const WorldOptions& options);
  virtual ~World();
  virtual Communicator& communicator() = 0;
  virtual const RankEnvironment& environment() const = 0;
  /// [local] Tells the others (through the store) why this rank fails; the first one to say so
  /// wins. A PeerError's exit code (5) never displaces a rank's own failure.
  virtual void report_failure(int exit_code, const std::string& message) = 0;
  /// [local] The same for what no rank is to blame for: nothing stands before the message.
  virtual void report_outcome(int exit_code, const std::string& message) = 0;
  /// [local] After a PeerError: the first failure that any rank reported, its message with
  /// "rank N: " before it. Gives the rank that failed up to `seconds` to say why.
  virtual std::optional<std::string> await_failure(double seconds) = 0;
  /// [collective] A clean end: everyone waits for everyone.
  virtual void leave() = 0;
};

/// [local] Reports a failure of a rank that has not joined (or will not). False if nobody listens:
/// then the caller prints it. Only our own launcher listens before ranks have joined.
bool report_failure_to_launcher(const RankEnvironment& environment, int exit_code,
                                const std::string& message);

/// Runs `body(communicator)` on `num_ranks` threads of this process, joined through Gloo on the
/// loopback. For tests: the first exception is rethrown after all have ended.
void run_on_threads(int num_ranks, const std::function<void(Communicator& world)>& body);

struct LaunchOptions {
  int num_ranks = 1;
  int port = 0;                      ///< 0: any free one
  std::vector<std::string> command;  ///< program and arguments that every rank runs
};

/// Starts the local ranks of `--ranks N`, each in its own process group with a parent-death signal,
/// waits for them, and returns the run's exit code. When one fails, prints the first cause once as
/// "zerolab: error: rank N: ..." (without the rank if it is a mistake in the configuration, which
/// all ranks share) and stops the others within two seconds. SIGINT and SIGTERM are passed on once,
/// as SIGTERM; a SIGINT after that kills all ranks and returns 130.
///
/// Returns: 0 if all ranks returned 0; 75 if all that did not return 0 returned 75; else the code
/// of the rank that failed first, 5 if a signal killed it; 128 + the signal passed on, if ranks
/// died of that.
///
/// Errors: ConfigError for a port in use or a program that cannot be started; nothing runs then.
int launch_local_ranks(const LaunchOptions& options);

}  // namespace zerolab
