#include "distributed/child_process.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zerolab/error.h"

extern char** environ;

namespace zerolab {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// What the child does between fork and exec. Other threads held locks when it was made: only
/// async-signal-safe calls.
[[noreturn]] void become(const char* program, char* const* arguments, char* const* environment,
                         pid_t parent, const sigset_t& signal_mask, int report_fd) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the launcher died before that took effect
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  if (null > STDERR_FILENO) ::close(null);
  ::signal(SIGCHLD, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &signal_mask, nullptr);
  ::execve(program, arguments, environment);
  const int reason = errno;
  const auto written = ::write(report_fd, &reason, sizeof reason);
  ::_exit(written == sizeof reason ? 127 : 126);
}

}  // namespace

std::string find_program(const std::string& word) {
  if (word.find('/') != std::string::npos) return word;
  const char* path = std::getenv("PATH");
  std::istringstream directories(path ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string directory; std::getline(directories, directory, ':');) {
    const std::string file = (directory.empty() ? "." : directory) + "/" + word;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  throw ConfigError("the program \"" + word + "\" is not in PATH: give its full path");
}

std::vector<std::string> changed_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> result = changes;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string variable(*entry);
    const std::string name = variable.substr(0, variable.find('=') + 1);
    bool changed = false;
    for (const std::string& change : changes) changed = changed || change.starts_with(name);
    if (!changed) result.push_back(variable);
  }
  return result;
}

pid_t start_child(const std::string& program, const std::vector<std::string>& arguments,
                  const std::vector<std::string>& environment, const sigset_t& signal_mask) {
  const auto argument_list = pointers(arguments);
  const auto environment_list = pointers(environment);
  int report[2];  // closed by a successful exec; carries errno otherwise
  if (::pipe2(report, O_CLOEXEC) != 0)
    throw ConfigError(std::string("cannot start a rank: ") + std::strerror(errno));
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0)
    become(program.c_str(), argument_list.data(), environment_list.data(), parent, signal_mask,
           report[1]);
  const int fork_error = errno;
  ::close(report[1]);
  int reason = child < 0 ? fork_error : 0;
  if (child > 0) {
    ::setpgid(child, child);  // here too, so that it holds before this process signals the group
    ssize_t length = 0;
    do {
      length = ::read(report[0], &reason, sizeof reason);
    } while (length < 0 && errno == EINTR);
    if (length != sizeof reason) reason = 0;
  }
  ::close(report[0]);
  if (reason == 0) return child;
  if (child > 0) ::waitpid(child, nullptr, 0);
  throw ConfigError("cannot start \"" + program + "\" as a rank: " + std::strerror(reason));
}

}  // namespace zerolab
