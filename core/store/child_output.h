#pragma once
// Running another program and reading what it prints.
//
// No shell: the arguments are the program's. The child has its own process group, standard input
// from /dev/null, the default action for every signal, and none of this process's files: a socket
// that lived on in it would hide from other ranks that this one died.
// Ranks: local. From any thread.

#include <limits>
#include <string>
#include <vector>

namespace zerolab {

/// Ends waits, for good; from any thread.
class StopSwitch {
 public:
  StopSwitch();
  ~StopSwitch();
  StopSwitch(const StopSwitch&) = delete;
  StopSwitch& operator=(const StopSwitch&) = delete;
  void stop();
  bool stopped() const;
  int descriptor() const { return descriptor_; }  ///< readable from stop() on

 private:
  int descriptor_;
};

struct ChildOutput {
  int code = 0;          ///< exit code, or minus the signal that ended it
  bool stopped = false;  ///< killed because of the switch or the time
  std::string output;
  std::string errors;  ///< the last 64 KiB
};

/// The file that `name` means in PATH; empty if there is none.
std::string program_in_path(const std::string& name);

/// Runs `program` (a path) to its end. When `stop` is thrown or `seconds` are over, its whole
/// process group is killed. Errors: StoreError if it cannot be started.
ChildOutput run_program(const std::string& program, const std::vector<std::string>& arguments,
                        const std::vector<std::string>& environment, const StopSwitch& stop,
                        double seconds = std::numeric_limits<double>::infinity());

}  // namespace zerolab
