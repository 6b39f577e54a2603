#pragma once
// Joining the ranks of a run: who am I, where do we meet, and the communicator between us.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zerolab/communicator.h"

#include "distributed/pulse.h"

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
  /// Our launcher starts the ranks again after a failure: the run folder to go on from, from
  /// ZEROLAB_RESTART_OF. Empty at a first start, or if the run had no folder yet.
  std::string restart_of;
  /// When our launcher was started, on this machine's steady clock, from ZEROLAB_LAUNCHED_AT; 0:
  /// not by our launcher.
  int64_t launched_at_us = 0;
};

/// Reads the environment. Errors: ConfigError for contradictory or unparsable variables.
RankEnvironment read_rank_environment();

struct WorldOptions {
  double join_timeout_s = 300;  ///< how long ranks wait for each other at the start
  /// A collective that takes longer is a PeerError. At least twice what watch() is given, so that
  /// the rank that is stuck is named before the others give up.
  double timeout_s = 1800;
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
  /// [local] Where the main thread is: it calls beat() whenever it has made progress. Its waits for
  /// other ranks show by themselves.
  virtual Pulse& pulse() = 0;
  /// [local] [setup] From now on a thread looks for ranks that are stuck, until leave(), a report
  /// or the end; 0: none does. A rank that makes no progress for `stall_timeout_s` and does not
  /// wait for others ends with exit code 5 and its place ("made no progress for 60 s in step 12,
  /// backward: it is stuck"); the others do it for one that they do not hear of, and end when they
  /// stay blocked after a failure that any rank reported. Such an end unwinds nothing.
  virtual void watch(double stall_timeout_s) = 0;
  /// [local] Rank 0: where this run is kept. Our launcher gives it to the ranks that it starts
  /// again after a failure; elsewhere it does nothing.
  virtual void announce_run_folder(const std::string& path) = 0;
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
  int restarts = 0;                  ///< after failures; then the run fails
  std::chrono::steady_clock::time_point launched_at = std::chrono::steady_clock::now();
  double restart_wait_s = 1;  ///< before the first one; doubles with each, up to 30 s
};

/// Starts the local ranks of `--ranks N`, each in its own process group with a parent-death signal,
/// waits for them, and returns the run's exit code. When one fails, prints the first cause once as
/// "zerolab: error: rank N: ..." (without the rank if it is a mistake in the configuration, which
/// all ranks share) and stops the others within two seconds. The first SIGINT, SIGTERM or SIGUSR1
/// is passed on as SIGTERM and later ones are passed over, but a second SIGINT kills all ranks and
/// returns 130.
///
/// Restarts: after a failure with exit code 1, 4 or 5 the ranks are started again with a meeting of
/// their own and, once a rank announced its run folder, ZEROLAB_RESTART_OF. Never after a signal
/// from the user, which also ends the wait before a restart.
///
/// Returns: 0 if all ranks returned 0; 75 if all that did not return 0 returned 75; else the code
/// of the rank that failed first, 5 if a signal killed it; 128 + the signal passed on, if ranks
/// died of that.
///
/// Errors: ConfigError for a port in use or a program that cannot be started; nothing runs then.
int launch_local_ranks(const LaunchOptions& options);

}  // namespace zerolab
