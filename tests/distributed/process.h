#pragma once
// A program under test, in a process of its own: what it prints, how it ends.

#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace zerolab_test {

class Process {
 public:
  /// Starts it with standard output and error in one pipe, and `more` variables in its environment.
  /// PATH is not searched.
  explicit Process(const std::vector<std::string>& command,
                   const std::map<std::string, std::string>& more = {});
  /// Kills it if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  /// Reads until `text` was printed `times` times. Throws when the program ends before that, or
  /// after a minute.
  void wait_for_text(const std::string& text, int times = 1);
  /// Reads to the end of output (of its children too) and returns the exit code; 128 + N if signal
  /// N ended it.
  int wait();
  void signal(int number) const;
  const std::string& output() const { return output_; }

 private:
  bool read_more(int timeout_ms);
  pid_t pid_ = -1;
  int fd_ = -1;
  std::string output_;
};

int count(const std::string& text, const std::string& part);

/// Ends within a minute; a zombie that nobody has waited for counts as ended.
bool has_ended(pid_t pid);

/// A port that is free now.
int free_port();

/// Takes a port on the loopback and holds it.
class HeldPort {
 public:
  HeldPort();
  ~HeldPort();
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;
  int port() const { return port_; }

 private:
  int fd_, port_;
};

}  // namespace zerolab_test
