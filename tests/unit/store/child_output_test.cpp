#include "store/child_output.h"

#include <csignal>
#include <string>
#include <thread>

#include "zerolab/error.h"

#include "catch.h"
#include "mirror_scratch.h"

namespace zerolab {

TEST_CASE("a program's output, errors and exit code are kept apart") {
  const StopSwitch stop;
  const ChildOutput child =
      run_program("/bin/sh", {"-c", "echo out; echo err >&2; cat; exit 7"}, {}, stop);
  CHECK(child.output == "out\n");
  CHECK(child.errors == "err\n");
  CHECK(child.code == 7);
  CHECK_FALSE(child.stopped);
  CHECK(run_program("/bin/sh", {"-c", "kill -9 $$"}, {}, stop).code == -9);
  CHECK_THROWS_WITH(run_program("/no/such/program", {}, {}, stop), Contains("/no/such/program"));
}

TEST_CASE("a program that leaves another behind is not waited for longer than itself") {
  const StopSwitch stop;
  const ChildOutput child =
      run_program("/bin/sh", {"-c", "sleep 1000 & echo $!"}, {"PATH=/usr/bin:/bin"}, stop);
  CHECK(child.code == 0);
  const pid_t left = std::stoi(child.output);
  CHECK(::kill(left, SIGKILL) == 0);  // it was there still
}

TEST_CASE("a switch ends a program and what it started") {
  const ScratchFolder scratch;
  StopSwitch stop;
  std::thread later([&] {
    wait_for([] { return !lines_of("pid").empty(); });
    stop.stop();
  });
  const ChildOutput child =
      run_program("/bin/sh", {"-c", "sleep 1000 & echo $! > pid; wait"}, {"PATH=/bin"}, stop);
  later.join();
  CHECK(child.stopped);
  CHECK(child.code == -SIGKILL);
  const pid_t inner = std::stoi(lines_of("pid").at(0));
  wait_for([&] {  // gone, or dead and not yet collected by who inherited it
    const std::string status = read_file("/proc/" + std::to_string(inner) + "/stat");
    return status.empty() || status.find(") Z ") != std::string::npos;
  });
}

TEST_CASE("a program gets none of this process's open files") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const StopSwitch stop;
  const ChildOutput child = run_program("/bin/ls", {"/proc/self/fd"}, {}, stop);
  close(ends[0]);
  close(ends[1]);
  CHECK(child.output == "0\n1\n2\n3\n");  // 3: the folder that ls reads
}

}  // namespace zerolab
