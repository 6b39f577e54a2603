#include "distributed/rank_environment.h"

#include <map>

#include "zerolab/error.h"

#include "catch.h"

using zerolab::ConfigError;
using zerolab::RankEnvironment;

namespace {

using Environment = std::map<std::string, std::string>;

RankEnvironment parse(const Environment& variables) {
  return zerolab::parse_rank_environment(
      [&](const std::string& name) -> std::optional<std::string> {
        auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      });
}

Environment with(Environment variables, const Environment& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

std::string refusal(const Environment& variables) {
  try {
    parse(variables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

const Environment kTorchrun{{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "node7"},
                            {"MASTER_PORT", "1234"}};
const Environment kSlurm{{"SLURM_JOB_ID", "77"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NUM_TASKS", "7"},
                         {"SLURM_PROCID", "6"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "3"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                         {"SLURM_STEP_NODELIST", "gpu[017-019,023]"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};

}  // namespace

TEST_CASE("a process without a launcher is alone") {
  const auto environment = parse({{"PATH", "/bin"}, {"RANK", ""}});
  CHECK(environment.source == "single");
  CHECK(environment.rank == 0);
  CHECK(environment.size == 1);
  CHECK(environment.local_size == 1);
  CHECK_FALSE(environment.hosts_store);
}

TEST_CASE("our own launcher's ranks are all local and reach its store on the loopback") {
  const Environment own{
      {"ZEROLAB_RANK", "2"}, {"ZEROLAB_WORLD_SIZE", "3"}, {"ZEROLAB_STORE_PORT", "4711"}};
  // It also wins inside of another launcher's task.
  const auto environment = parse(with(kSlurm, own));
  CHECK(environment.source == "zerolab");
  CHECK(environment.rank == 2);
  CHECK(environment.size == 3);
  CHECK(environment.local_rank == 2);
  CHECK(environment.local_size == 3);
  CHECK(environment.address == "127.0.0.1");
  CHECK(environment.port == 4711);
  CHECK_FALSE(environment.hosts_store);
  CHECK(refusal({{"ZEROLAB_RANK", "0"}, {"ZEROLAB_WORLD_SIZE", "2"}}).find("ZEROLAB_STORE_PORT") !=
        std::string::npos);
}

TEST_CASE("only our own launcher says which run is started again") {
  const Environment restart{{"ZEROLAB_RESTART_OF", "/runs/a-1"}};
  const Environment own{
      {"ZEROLAB_RANK", "0"}, {"ZEROLAB_WORLD_SIZE", "1"}, {"ZEROLAB_STORE_PORT", "4711"}};
  CHECK(parse(with(own, restart)).restart_of == "/runs/a-1");
  CHECK(parse(own).restart_of.empty());
  CHECK(parse(with(own, {{"ZEROLAB_RESTART_OF", ""}})).restart_of.empty());
  CHECK(parse(with(kTorchrun, restart)).restart_of.empty());
  CHECK(parse(restart).restart_of.empty());
}

TEST_CASE("torchrun's variables say rank, machine and address") {
  const auto environment = parse(kTorchrun);
  CHECK(environment.source == "torchrun");
  CHECK(environment.rank == 5);
  CHECK(environment.size == 8);
  CHECK(environment.local_rank == 1);
  CHECK(environment.local_size == 4);
  CHECK(environment.address == "node7");
  CHECK(environment.port == 1234);
  CHECK_FALSE(environment.hosts_store);
}

TEST_CASE("rank 0 of torchrun hosts the store unless the agent does") {
  const auto first = with(kTorchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}});
  CHECK(parse(first).hosts_store);
  CHECK_FALSE(parse(with(first, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).hosts_store);
  CHECK(parse(with(first, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).hosts_store);
}

TEST_CASE("restarted ranks do not meet at the keys of those before them") {
  const auto once = parse(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "0"}}));
  const auto twice = parse(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}}));
  CHECK(once.meeting != twice.meeting);
}

TEST_CASE("ranks with a loopback address and no local numbers are all on this machine") {
  const auto environment = parse(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}});
  CHECK(environment.local_rank == 1);
  CHECK(environment.local_size == 2);
}

TEST_CASE("contradictory and unparsable variables are refused by name") {
  const auto variables =
      GENERATE(table<std::string, std::string>({{"RANK", "8"},
                                                {"RANK", "-1"},
                                                {"RANK", "1x"},
                                                {"RANK", ""},
                                                {"WORLD_SIZE", "0"},
                                                {"WORLD_SIZE", "99999999999999999999"},
                                                {"WORLD_SIZE", ""},
                                                {"LOCAL_RANK", "4"},
                                                {"LOCAL_RANK", ""},
                                                {"LOCAL_WORLD_SIZE", "9"},
                                                {"MASTER_ADDR", ""},
                                                {"MASTER_PORT", "65536"},
                                                {"MASTER_PORT", "ssh"}}));
  const auto& [name, value] = variables;
  const std::string message = refusal(with(kTorchrun, {{name, value}}));
  INFO(message);
  CHECK(message.find(name) != std::string::npos);
  if (!value.empty()) CHECK(message.find("\"" + value + "\"") != std::string::npos);
}

TEST_CASE("a Slurm step's tasks find their machine, the first host and a port of their own") {
  const auto environment = parse(kSlurm);
  CHECK(environment.source == "slurm");
  CHECK(environment.rank == 6);
  CHECK(environment.size == 7);
  CHECK(environment.local_rank == 0);
  CHECK(environment.local_size == 1);
  CHECK(environment.address == "gpu017");
  CHECK(environment.port >= 20000);
  CHECK(environment.port < 32000);
  CHECK(environment.port == parse(with(kSlurm, {{"SLURM_PROCID", "0"}})).port);
  CHECK(environment.port != parse(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).port);
  CHECK(parse(with(kSlurm, {{"MASTER_PORT", "1234"}})).port == 1234);
  CHECK(parse(with(kSlurm, {{"MASTER_ADDR", "10.0.0.1"}})).address == "10.0.0.1");
  CHECK(parse(with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}})).local_size == 2);
  CHECK(parse(with(kSlurm, {{"SLURM_PROCID", "0"}})).hosts_store);
}

TEST_CASE("Slurm tasks on one node meet on the loopback") {
  const auto environment =
      parse(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "7"}, {"SLURM_NODEID", "0"}}));
  CHECK(environment.local_size == 7);
  CHECK(environment.address == "127.0.0.1");
}

TEST_CASE("Slurm's batch script, allocation shell and one-task step are single processes") {
  auto allocation = kSlurm;
  allocation.erase("SLURM_STEP_ID");
  CHECK(parse(allocation).source == "single");
  CHECK(parse(allocation).size == 1);
  CHECK(parse(with(kSlurm, {{"SLURM_STEP_ID", "4294967291"}})).size == 1);
  CHECK(parse(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}})).size == 1);
}

TEST_CASE("Slurm variables that contradict each other are refused by name") {
  CHECK(refusal(with(kSlurm, {{"SLURM_PROCID", "7"}})).find("SLURM_PROCID") != std::string::npos);
  CHECK(refusal(with(kSlurm, {{"SLURM_LOCALID", "1"}})).find("SLURM_LOCALID") != std::string::npos);
  CHECK(refusal(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x3"}}))
            .find("SLURM_STEP_TASKS_PER_NODE") != std::string::npos);
  CHECK(refusal(with(kSlurm, {{"SLURM_STEP_NODELIST", "gpu[017"}})).find("gpu[017") !=
        std::string::npos);
}

TEST_CASE("the first host of a Slurm node list") {
  CHECK(zerolab::first_host("login1") == "login1");
  CHECK(zerolab::first_host("a,b[1-2]") == "a");
  CHECK(zerolab::first_host("node[008-012,3],x") == "node008");
  CHECK(zerolab::first_host("node[5]") == "node5");
  CHECK(zerolab::first_host("rack[2-3]n[07,09]-ib") == "rack2n07-ib");
}

TEST_CASE("Slurm's list of tasks per node") {
  CHECK(zerolab::tasks_per_node("X", "4") == std::vector<int>{4});
  CHECK(zerolab::tasks_per_node("X", "2(x3),1") == std::vector<int>{2, 2, 2, 1});
  const std::string wrong = GENERATE("", "2,", ",2", "2(x)", "2(3)", "two", "2(x3)1");
  CHECK_THROWS_AS(zerolab::tasks_per_node("X", wrong), ConfigError);
}

TEST_CASE("Open MPI on one machine needs no address, on several it does") {
  const auto environment = parse(kOpenMpi);
  CHECK(environment.source == "openmpi");
  CHECK(environment.rank == 3);
  CHECK(environment.local_size == 4);
  CHECK(environment.address == "127.0.0.1");
  CHECK_FALSE(environment.hosts_store);
  const auto several =
      with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  CHECK(refusal(several).find("MASTER_ADDR") != std::string::npos);
  CHECK(parse(with(several, {{"MASTER_ADDR", "node1"}})).address == "node1");
  // mpirun inside an allocation: Slurm's variables describe mpirun's own daemon.
  CHECK(parse(with(kSlurm, kOpenMpi)).source == "openmpi");
}

TEST_CASE("the network interface can be named, our own variable first") {
  CHECK(parse(with(kTorchrun, {{"GLOO_SOCKET_IFNAME", "eth1,eth2"}})).interface == "eth1");
  CHECK(parse(with(kTorchrun, {{"GLOO_SOCKET_IFNAME", "eth1"}, {"ZEROLAB_INTERFACE", "ib0"}}))
            .interface == "ib0");
}
