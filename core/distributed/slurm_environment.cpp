// Slurm's variables, as srun sets them for each task of a step.

#include <algorithm>
#include <numeric>
#include <regex>

#include "zerolab/error.h"

#include "distributed/rank_environment.h"

namespace zerolab {
namespace {

// Slurm numbers the batch script, the interactive shell and the like from here on: they are one
// process, not tasks.
constexpr int64_t kFirstSpecialStep = 0xfffffff0;
constexpr int64_t kMaxStep = 0xffffffff;
constexpr int64_t kMaxTasks = 1 << 20;

/// Tasks on this machine: from the step's variables, or the job's where those are missing.
void read_local_ranks(const Variables& variables, RankEnvironment& environment) {
  environment.local_rank =
      static_cast<int>(variables.integer("SLURM_LOCALID", 0, environment.size - 1).value_or(0));
  auto node = static_cast<size_t>(variables.integer("SLURM_NODEID", 0, kMaxTasks).value_or(0));
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    auto text = variables.text(name);
    if (!text) continue;
    auto tasks = tasks_per_node(name, *text);
    // The job's list may describe another number of tasks than this step has.
    if (node >= tasks.size() || std::accumulate(tasks.begin(), tasks.end(), 0) != environment.size)
      continue;
    environment.local_size = tasks[node];
    if (environment.local_rank >= environment.local_size) {
      throw ConfigError("SLURM_LOCALID = " + std::to_string(environment.local_rank) +
                        " contradicts " + name + " = \"" + *text +
                        "\": it must be less than the tasks of node " + std::to_string(node));
    }
    return;
  }
  const auto per_node = variables.integer("SLURM_NTASKS_PER_NODE", 1, kMaxTasks);
  environment.local_size = static_cast<int>(
      std::min<int64_t>(per_node.value_or(environment.local_rank + 1), environment.size));
  environment.local_size = std::max(environment.local_size, environment.local_rank + 1);
}

}  // namespace

std::vector<int> tasks_per_node(const std::string& name, const std::string& text) {
  static const std::regex kEntry(R"((\d{1,6})(?:\(x(\d{1,6})\))?)");
  std::vector<int> tasks;
  for (size_t start = 0; start <= text.size();) {
    const size_t comma = std::min(text.find(',', start), text.size());
    const std::string entry = text.substr(start, comma - start);
    std::smatch match;
    if (!std::regex_match(entry, match, kEntry)) {
      throw ConfigError(
          "The environment variable " + name + " = \"" + text +
          "\" must be a list such as \"4\" or \"2(x3),1\": start with srun, which sets it");
    }
    const size_t nodes = match[2].matched ? std::stoul(match[2]) : 1;
    tasks.insert(tasks.end(), nodes, std::stoi(match[1]));
    start = comma + 1;
  }
  return tasks;
}

std::string first_host(const std::string& node_list) {
  std::string host;
  for (size_t i = 0; i < node_list.size() && node_list[i] != ','; ++i) {
    if (node_list[i] != '[') {
      host += node_list[i];
      continue;
    }
    const size_t close = node_list.find(']', i);
    const size_t end = node_list.find_first_of("-,]", i + 1);
    if (close == std::string::npos) {
      throw ConfigError("The Slurm node list \"" + node_list +
                        "\" has a '[' without its ']': set MASTER_ADDR to the machine of rank 0");
    }
    host += node_list.substr(i + 1, end - i - 1);
    i = close;
  }
  return host;
}

std::optional<RankEnvironment> parse_slurm_environment(const Variables& variables) {
  auto step = variables.integer("SLURM_STEP_ID", 0, kMaxStep);
  if (!step) step = variables.integer("SLURM_STEPID", 0, kMaxStep);
  if (!step || *step >= kFirstSpecialStep)
    return std::nullopt;  // in an allocation, but not started by srun
  auto size = variables.integer("SLURM_STEP_NUM_TASKS", 1, kMaxTasks);
  if (!size) size = variables.needed_integer("SLURM_NTASKS", 1, kMaxTasks, "Slurm");
  if (*size == 1) return std::nullopt;

  RankEnvironment environment;
  environment.source = "slurm";
  environment.size = static_cast<int>(*size);
  environment.rank =
      static_cast<int>(variables.needed_integer("SLURM_PROCID", 0, environment.size - 1, "Slurm"));
  read_local_ranks(variables, environment);
  auto address = variables.text("MASTER_ADDR");
  if (!address && environment.local_size != environment.size) {
    auto nodes = variables.text("SLURM_STEP_NODELIST");
    if (!nodes) nodes = variables.text("SLURM_NODELIST");
    address = nodes ? first_host(*nodes) : variables.text("SLURM_LAUNCH_NODE_IPADDR");
    if (!address) {
      throw ConfigError(
          "SLURM_STEP_NODELIST is not set, so the machine of rank 0 is unknown: start with srun, "
          "or set MASTER_ADDR to that machine");
    }
  }
  environment.address = address.value_or(environment.address);
  const std::string job =
      variables.text("SLURM_JOB_ID").value_or("0") + "." + std::to_string(*step);
  environment.port = variables.port(derived_port(job));
  environment.hosts_store = environment.rank == 0;
  environment.meeting += '/';
  environment.meeting += job;
  return environment;
}

}  // namespace zerolab
