#include "launched.h"

namespace zerolab_test {

std::unique_ptr<Process> launch(int num_ranks, const Words& action, int port, int restarts,
                                const std::string& restart_wait_s) {
  Words command{ZEROLAB_TEST_RANK_PROGRAM, "launch",
                std::to_string(num_ranks), std::to_string(port),
                std::to_string(restarts),  restart_wait_s};
  command.insert(command.end(), action.begin(), action.end());
  return std::make_unique<Process>(command);
}

std::vector<std::unique_ptr<Process>> start_like_torchrun(int num_ranks, const Words& action,
                                                          int port) {
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto number = std::to_string(rank), size = std::to_string(num_ranks);
    Words command{ZEROLAB_TEST_RANK_PROGRAM};
    command.insert(command.end(), action.begin(), action.end());
    ranks.push_back(std::make_unique<Process>(
        command, std::map<std::string, std::string>{{"RANK", number},
                                                    {"WORLD_SIZE", size},
                                                    {"LOCAL_RANK", number},
                                                    {"LOCAL_WORLD_SIZE", size},
                                                    {"MASTER_ADDR", "127.0.0.1"},
                                                    {"MASTER_PORT", std::to_string(port)}}));
  }
  return ranks;
}

std::vector<pid_t> ready_pids(const std::string& output) {
  std::vector<pid_t> pids;
  for (size_t at = output.find("ready "); at != std::string::npos;
       at = output.find("ready ", at + 1))
    pids.push_back(std::stoi(output.substr(at + 6)));
  return pids;
}

}  // namespace zerolab_test
