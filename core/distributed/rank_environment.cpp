#include "distributed/rank_environment.h"

#include <charconv>
#include <cstdlib>
#include <utility>

#include "zerolab/error.h"

namespace zerolab {
namespace {

constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kMaxPort = 65535;
constexpr int kFirstDerivedPort = 20000, kNumDerivedPorts = 12000;
constexpr int kDefaultPort = 29500;  // what torchrun's users expect

/// The names under which a launcher says who a process is.
struct Names {
  std::string source, rank, size, local_rank, local_size;
};

void read_ranks(const Variables& variables, const Names& names, RankEnvironment& environment) {
  environment.source = names.source;
  environment.size =
      static_cast<int>(variables.needed_integer(names.size, 1, kMaxRanks, names.source));
  environment.rank =
      static_cast<int>(variables.needed_integer(names.rank, 0, environment.size - 1, names.source));
}

/// Reads this machine's part; false if the launcher does not say.
bool read_local_ranks(const Variables& variables, const Names& names,
                      RankEnvironment& environment) {
  auto local_size = variables.integer(names.local_size, 1, environment.size);
  if (!local_size) return false;
  environment.local_size = static_cast<int>(*local_size);
  environment.local_rank = static_cast<int>(
      variables.needed_integer(names.local_rank, 0, environment.local_size - 1, names.source));
  return true;
}

RankEnvironment from_own_launcher(const Variables& variables) {
  const Names names{"zerolab", "ZEROLAB_RANK", "ZEROLAB_WORLD_SIZE", "ZEROLAB_LOCAL_RANK",
                    "ZEROLAB_LOCAL_SIZE"};
  RankEnvironment environment;
  read_ranks(variables, names, environment);
  if (!read_local_ranks(variables, names, environment)) {
    environment.local_rank = environment.rank;
    environment.local_size = environment.size;
  }
  environment.port =
      static_cast<int>(variables.needed_integer("ZEROLAB_STORE_PORT", 1, kMaxPort, names.source));
  environment.restart_of = variables.text("ZEROLAB_RESTART_OF").value_or("");
  environment.launched_at_us =
      variables.integer("ZEROLAB_LAUNCHED_AT", 0, std::numeric_limits<int64_t>::max()).value_or(0);
  return environment;
}

RankEnvironment from_torchrun(const Variables& variables) {
  const Names names{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  RankEnvironment environment;
  read_ranks(variables, names, environment);
  auto address = variables.text("MASTER_ADDR");
  if (!address && environment.size > 1) {
    throw ConfigError(
        "RANK and WORLD_SIZE are set but MASTER_ADDR is not: start with torchrun, which "
        "sets all of them, or set MASTER_ADDR to the machine of rank 0");
  }
  environment.address = address.value_or(environment.address);
  environment.port = variables.port(kDefaultPort);
  if (!read_local_ranks(variables, names, environment) &&
      (environment.address == "127.0.0.1" || environment.address == "localhost")) {
    environment.local_rank = environment.rank;
    environment.local_size = environment.size;
  }
  // torchrun's agent may host the store already; then its keys outlive a restart of the ranks.
  const bool agent_hosts = variables.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  environment.hosts_store = !agent_hosts && environment.rank == 0;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
    environment.meeting += '/';
    environment.meeting += variables.text(name).value_or("0");
  }
  return environment;
}

RankEnvironment from_open_mpi(const Variables& variables) {
  const Names names{"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
  RankEnvironment environment;
  read_ranks(variables, names, environment);
  read_local_ranks(variables, names, environment);
  const bool one_machine = environment.local_size == environment.size;
  auto address = variables.text("MASTER_ADDR");
  if (!address && !one_machine) {
    throw ConfigError(
        "Open MPI started " + std::to_string(environment.size) +
        " ranks on several machines and MASTER_ADDR is not set: pass the machine of rank 0 "
        "with mpirun -x MASTER_ADDR=HOST");
  }
  environment.address = address.value_or(environment.address);
  auto job = variables.text("PMIX_NAMESPACE");
  if (!job) job = variables.text("OMPI_MCA_ess_base_jobid");
  environment.port = variables.port(job ? derived_port(*job) : kDefaultPort);
  environment.hosts_store = environment.rank == 0;
  return environment;
}

}  // namespace

std::optional<std::string> Variables::text(const std::string& name) const {
  auto value = lookup_(name);
  if (value && value->empty()) value.reset();
  return value;
}

std::optional<int64_t> Variables::integer(const std::string& name, int64_t low,
                                          int64_t high) const {
  auto value = text(name);
  if (!value) return std::nullopt;
  int64_t number = 0;
  const char* end = value->data() + value->size();
  auto [stop, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc() || stop != end || number < low || number > high) {
    throw ConfigError(
        "The environment variable " + name + " = \"" + *value + "\" must be an integer from " +
        std::to_string(low) + " to " + std::to_string(high) +
        " here: correct it, or unset it with the launcher's other variables to run one process");
  }
  return number;
}

int64_t Variables::needed_integer(const std::string& name, int64_t low, int64_t high,
                                  const std::string& setter) const {
  auto number = integer(name, low, high);
  if (!number) {
    throw ConfigError("The environment variable " + name + " is not set, though others of " +
                      setter + " are: set it, or unset the others to run one process");
  }
  return *number;
}

int Variables::port(int otherwise) const {
  return static_cast<int>(integer("MASTER_PORT", 1, kMaxPort).value_or(otherwise));
}

int derived_port(const std::string& key) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (unsigned char c : key) hash = (hash ^ c) * 16777619u;
  return kFirstDerivedPort + static_cast<int>(hash % kNumDerivedPorts);
}

RankEnvironment parse_rank_environment(const EnvironmentLookup& lookup) {
  const Variables variables(lookup);
  RankEnvironment environment;
  if (variables.text("ZEROLAB_RANK") || variables.text("ZEROLAB_WORLD_SIZE")) {
    environment = from_own_launcher(variables);
  } else if (variables.text("RANK") || variables.text("WORLD_SIZE")) {
    environment = from_torchrun(variables);
  } else if (variables.text("OMPI_COMM_WORLD_SIZE") || variables.text("OMPI_COMM_WORLD_RANK")) {
    environment = from_open_mpi(variables);
  } else if (auto step = parse_slurm_environment(variables)) {
    environment = *step;
  }
  auto interface = variables.text("ZEROLAB_INTERFACE");
  if (!interface) interface = variables.text("GLOO_SOCKET_IFNAME");
  if (interface) environment.interface = interface->substr(0, interface->find(','));
  return environment;
}

RankEnvironment read_rank_environment() {
  return parse_rank_environment([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace zerolab
