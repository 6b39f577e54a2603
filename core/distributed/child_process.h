#pragma once
// Starting a rank: fork and exec, in a process group of its own, so that a terminal's Ctrl-C
// reaches only the launcher.

#include <csignal>
#include <string>
#include <vector>

#include <sys/types.h>

namespace zerolab {

/// The file that a command's first word means: as given if it holds a '/', else from PATH. Errors:
/// ConfigError if there is none.
std::string find_program(const std::string& word);

/// This process's environment as "NAME=value", with `changes` (of the same form) in place of
/// variables of the same names.
std::vector<std::string> changed_environment(const std::vector<std::string>& changes);

/// Starts `program` with standard input from /dev/null and the given signal mask. The child dies
/// with the thread that calls this. Errors: ConfigError if the program cannot be started; no child
/// is left then.
pid_t start_child(const std::string& program, const std::vector<std::string>& arguments,
                  const std::vector<std::string>& environment, const sigset_t& signal_mask);

}  // namespace zerolab
