#pragma once
// Ranks of rank_program, started by our launcher or as torchrun starts them.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "process.h"

namespace zerolab_test {

using Words = std::vector<std::string>;

/// The launcher with `num_ranks` ranks that do `action`. `restarts` and the seconds before the
/// first one as in LaunchOptions.
std::unique_ptr<Process> launch(int num_ranks, const Words& action, int port = 0, int restarts = 0,
                                const std::string& restart_wait_s = "0.05");

/// Ranks without our launcher, all on this machine.
std::vector<std::unique_ptr<Process>> start_like_torchrun(int num_ranks, const Words& action,
                                                          int port);

/// The process ids that ranks printed as "ready PID.".
std::vector<pid_t> ready_pids(const std::string& output);

}  // namespace zerolab_test
