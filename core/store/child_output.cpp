#include "store/child_output.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zerolab/error.h"

#include "store/file_layer.h"

namespace zerolab {
namespace {

constexpr size_t kKeptErrorBytes = 64 << 10;

/// A pipe from the child; both ends close themselves.
struct Pipe {
  Pipe() {
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw StoreError("a program cannot be started: " + errno_text(errno) + ".");
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
  std::array<int, 2> ends{-1, -1};
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// posix_spawn, not fork: the memory of a rank is large, and a fork stalls training while its page
/// tables are copied.
pid_t spawn(const std::string& program, const std::vector<std::string>& arguments,
            const std::vector<std::string>& environment, const Pipe& output, const Pipe& errors) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output.ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.ends[1], STDERR_FILENO);
#if __GLIBC_PREREQ(2, 34)
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
#endif
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = -1;
  const int error = ::posix_spawn(&child, program.c_str(), &actions, &attributes,
                                  pointers(words).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    throw StoreError(program + ": the program cannot be started: " + errno_text(error) + ".");
  return child;
}

/// Reads what is there; closes the end when nothing more comes.
void read_some(Pipe& pipe, std::string& text) {
  std::array<char, 16384> buffer;
  const ssize_t length = ::read(pipe.ends[0], buffer.data(), buffer.size());
  if (length > 0) {
    text.append(buffer.data(), static_cast<size_t>(length));
  } else if (length == 0 || errno != EINTR) {
    pipe.close_end(0);
  }
}

/// What the child wrote before it ended.
void drain(Pipe& pipe, std::string& text) {
  pollfd entry{pipe.ends[0], POLLIN, 0};
  while (pipe.ends[0] >= 0 && ::poll(&entry, 1, 0) > 0) read_some(pipe, text);
}

/// True if it ended. Where the process lets its children's ends be lost (SIGCHLD ignored), that
/// counts as a failure of the child.
bool has_ended(pid_t child, int options, int& status) {
  const pid_t answer = ::waitpid(child, &status, options);
  if (answer < 0 && errno != EINTR) status = 0xff00;
  return answer == child || (answer < 0 && errno != EINTR);
}

int exit_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

StopSwitch::StopSwitch() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0)
    throw StoreError("no event can be made: " + errno_text(errno) + "; raise `ulimit -n`.");
}

StopSwitch::~StopSwitch() {
  ::close(descriptor_);
}

void StopSwitch::stop() {
  const uint64_t one = 1;
  const ssize_t written = ::write(descriptor_, &one, sizeof one);
  static_cast<void>(written);  // fails only when it is thrown already, 2^64 times
}

bool StopSwitch::stopped() const {
  pollfd entry{descriptor_, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

std::string program_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    struct stat status {};
    if (::access(file.c_str(), X_OK) == 0 && ::stat(file.c_str(), &status) == 0 &&
        S_ISREG(status.st_mode))
      return file;
  }
  return {};
}

ChildOutput run_program(const std::string& program, const std::vector<std::string>& arguments,
                        const std::vector<std::string>& environment, const StopSwitch& stop,
                        double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  Pipe output, errors;
  ChildOutput result;
  if (stop.stopped()) return {.code = -SIGKILL, .stopped = true, .output = {}, .errors = {}};
  const pid_t child = spawn(program, arguments, environment, output, errors);
  output.close_end(1);
  errors.close_end(1);

  int status = 0;
  bool ended = false;
  while (!ended) {
    std::array<pollfd, 3> entries{
        {{output.ends[0], POLLIN, 0}, {errors.ends[0], POLLIN, 0}, {stop.descriptor(), POLLIN, 0}}};
    const bool all_read = output.ends[0] < 0 && errors.ends[0] < 0;
    // A program may end and leave one of its own that holds the pipes open; or close them and go
    // on.
    ::poll(entries.data(), entries.size(), all_read ? 10 : 200);
    if (entries[0].revents != 0) read_some(output, result.output);
    if (entries[1].revents != 0) read_some(errors, result.errors);
    if (result.errors.size() > 2 * kKeptErrorBytes)
      result.errors.erase(0, result.errors.size() - kKeptErrorBytes);
    const std::chrono::duration<double> passed = Clock::now() - start;
    if (entries[2].revents != 0 || passed.count() > seconds) {
      ::kill(-child, SIGKILL);
      result.stopped = true;
      ended = has_ended(child, 0, status);
    } else if (all_read || (entries[0].revents == 0 && entries[1].revents == 0)) {
      ended = has_ended(child, WNOHANG, status);
    }
  }
  if (!result.stopped) {
    drain(output, result.output);
    drain(errors, result.errors);
  }
  result.code = exit_code(status);
  return result;
}

}  // namespace zerolab
