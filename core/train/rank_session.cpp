#include "train/rank_session.h"

#include <algorithm>
#include <memory>
#include <new>
#include <thread>

#include <malloc.h>
#include <sched.h>

#include <ATen/Parallel.h>

#include "zerolab/error.h"

#include "train/tensor_memory.h"

namespace zerolab {
namespace {

/// Training frees and allocates the same large blocks every step. Keeping them in the heap instead
/// of giving them back to the kernel saves a page fault for every 4 KiB of them.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
}

/// Cores that this process may use, shared with the other ranks of this machine unless their
/// launcher bound each to its own.
int threads_per_rank(const Experiment& experiment, const RankEnvironment& environment) {
  if (experiment.threads > 0) return static_cast<int>(experiment.threads);
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const auto online = static_cast<int>(std::thread::hardware_concurrency());
  const int usable = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : online;
  const bool own_launcher = environment.source == "zerolab" || environment.source == "single";
  const bool bound = !own_launcher && usable < online;
  return std::max(1, bound ? usable : usable / std::max(1, environment.local_size));
}

RankOutcome join_and_run(const ExperimentRequest& request, const RankEnvironment& environment,
                         const RankBody& body, std::unique_ptr<World>& world) {
  const ExperimentFile file = ExperimentFile::load(request.experiment, request.overrides);
  PluginHost host(search_for(request, file));
  const Experiment experiment = resolve_for_training(file, host, environment.size);
  WorldOptions options;
  options.check_collectives = experiment.check_collectives;
  options.device = experiment.device;
  options.timeout_s = std::max(options.timeout_s, 2 * experiment.distributed.stall_timeout_s);
  world = World::join(environment, options);
  RankOutcome outcome;
  try {
    const int threads = threads_per_rank(experiment, world->environment());
    at::set_num_threads(threads);
    JoinedRank joined{*world, host, experiment, world->communicator(), threads};
    outcome = body(joined);
  } catch (const c10::Error& error) {
    throw Error("set-up: " + plain_sentence(error));
  } catch (const std::bad_alloc&) {
    throw Error("out of memory; use a smaller model or a smaller micro_batch_size.");
  }
  world->leave();
  return outcome;
}

/// Tells the other ranks and the launcher. True if the launcher prints it.
bool report(World* world, const RankEnvironment& environment, int exit_code,
            const std::string& message) {
  if (world == nullptr) return report_failure_to_launcher(environment, exit_code, message);
  world->report_failure(exit_code, message);
  return environment.source == "zerolab";
}

/// A failure of the whole, after everyone has left.
int tell_problem(World& world, const std::string& problem) {
  const int code = static_cast<int>(ExitCode::kError);
  if (world.environment().rank != 0) return 0;
  world.report_outcome(code, problem);
  if (world.environment().source == "zerolab") return code;
  throw Error(problem);
}

}  // namespace

PluginSearch search_for(const ExperimentRequest& request, const ExperimentFile& file) {
  PluginSearch search = request.search;
  search.from_experiment = file.plugin_path();
  return search;
}

Experiment resolve_for_training(const ExperimentFile& file, PluginHost& host, int num_ranks) {
  Experiment experiment = file.resolve(host, num_ranks);
  if (experiment.device != "cpu") {
    throw ConfigError("key 'device': \"" + experiment.device +
                      "\" cannot be trained on by this version; set device = \"cpu\".");
  }
  const GuardConfig& guard = experiment.guard;
  const bool rolls_back = guard.non_finite == "rollback" || guard.spike == "rollback";
  if (rolls_back && experiment.checkpoint.every == 0) {
    throw ConfigError(
        "table [guard]: \"rollback\" needs checkpoints to go back to; set checkpoint.every.");
  }
  host.create<Sharding>(experiment)->check_ranks(num_ranks);
  return experiment;
}

TrainingPlugins make_plugins(PluginHost& host, const Experiment& experiment) {
  return {host.create<Data>(experiment),      host.create<Model>(experiment),
          host.create<Optimizer>(experiment), host.create<Scheduler>(experiment),
          host.create<Precision>(experiment), host.create<Sharding>(experiment)};
}

int run_as_rank(const ExperimentRequest& request, const RankEnvironment& environment,
                const RankBody& body) {
  keep_freed_memory();
  count_tensor_memory();
  std::unique_ptr<World> world;
  RankOutcome outcome;
  try {
    outcome = join_and_run(request, environment, body, world);
  } catch (Error& error) {
    const int code = static_cast<int>(error.exit_code());
    if (report(world.get(), environment, code, error.what())) return code;
    // What broke the connection says more than that it broke.
    const auto cause = world != nullptr && error.exit_code() == ExitCode::kPeer
                           ? world->await_failure(1)
                           : std::nullopt;
    if (cause) throw PeerError(*cause);
    if (environment.size > 1) error.in("rank " + std::to_string(environment.rank));
    throw;
  } catch (const std::exception& error) {
    const int code = static_cast<int>(ExitCode::kError);
    if (report(world.get(), environment, code, error.what())) return code;
    throw;
  }
  return outcome.problem.empty() ? outcome.exit_code : tell_problem(*world, outcome.problem);
}

}  // namespace zerolab
