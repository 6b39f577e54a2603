// What launch_test starts: a launcher of itself (`launch N PORT ACTION [RANK]`), or a rank that
// acts on a word.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>

#include <ATen/ATen.h>

#include "zerolab/error.h"

#include "distributed/world.h"

using namespace zerolab;

namespace {

constexpr int kStopped = static_cast<int>(ExitCode::kStopped);

void say(const std::string& line) {
  const std::string text =
      line + "\n";  // in one write, so that ranks do not cut each other's lines
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) std::abort();
}

/// Says that it is ready and sleeps; on SIGTERM returns with `code`, or not at all if that is
/// negative.
int sleep_until_stopped(int code) {
  static int answer;
  answer = code;
  std::signal(SIGTERM, [](int) {
    constexpr char kText[] = "told to stop\n";
    if (::write(STDOUT_FILENO, kText, sizeof kText - 1) > 0 && answer >= 0) ::_exit(answer);
  });
  say("ready " + std::to_string(::getpid()) + ".");
  for (;;) ::pause();
}

void describe_process() {
  char target[64] = "";
  const auto length = ::readlink("/proc/self/fd/0", target, sizeof target - 1);
  say(std::string("input ") + (length > 0 ? target : "unknown") + ", own group " +
      (::getpgrp() == ::getpid() ? "yes" : "no"));
}

/// What the chosen rank does; the others wait for it in a collective.
int act(World& world, const std::string& action, int chosen) {
  Communicator& ranks = world.communicator();
  const int rank = ranks.rank();
  if (action == "add") {
    const at::Tensor out = at::empty({1}), in = at::full({ranks.size()}, rank + 1.0F);
    ranks.reduce_scatter(out, in)->wait();
    say("sum " + std::to_string(out.item<float>()));
  } else if (action == "describe") {
    describe_process();
  } else if (action == "part") {
    return rank == chosen ? 0 : kStopped;
  } else if (rank == chosen && action == "fail") {
    throw StoreError("the disk is full");
  } else if (rank == chosen && action == "exit") {
    ::_exit(9);
  } else if (rank == chosen && action == "kill") {
    std::raise(SIGKILL);
  } else if (rank == chosen && action == "stick") {
    sleep_until_stopped(-1);
  }
  world.leave();
  return 0;
}

int run_rank(const std::string& action, int chosen) {
  const RankEnvironment environment = read_rank_environment();
  const auto end = [&](const std::string& message, int code, bool told) {
    if (environment.source != "zerolab" || !told)
      std::fprintf(stderr, "rank %d ends: %s\n", environment.rank, message.c_str());
    return code;
  };
  if (action == "hang") sleep_until_stopped(-1);
  if (action == "stop") sleep_until_stopped(kStopped);
  std::unique_ptr<World> world;
  try {
    if (action == "configuration") throw ConfigError("a.toml:1:1: nothing is right");
    WorldOptions options;
    options.timeout_s = action == "stick" ? 1 : 60;
    options.join_timeout_s = 60;
    if (action == "gpu") options.device = "cuda";
    world = World::join(environment, options);
    return act(*world, action, chosen);
  } catch (const Error& error) {
    const int code = static_cast<int>(error.exit_code());
    if (!world)
      return end(error.what(), code, report_failure_to_launcher(environment, code, error.what()));
    world->report_failure(code, error.what());
    const bool peer = error.exit_code() == ExitCode::kPeer;
    return end(peer ? world->await_failure(1).value_or(error.what()) : error.what(), code, true);
  }
}

int launch(char** arguments) {
  LaunchOptions options;
  options.num_ranks = std::atoi(arguments[2]);
  options.port = std::atoi(arguments[3]);
  const bool missing = std::strcmp(arguments[4], "missing") == 0;
  options.command = {missing ? "/nowhere/program" : arguments[0]};
  for (char** word = arguments + 4; *word; ++word) options.command.emplace_back(*word);
  try {
    return launch_local_ranks(options);
  } catch (const Error& error) {
    std::fprintf(stderr, "zerolab: error: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 5 && std::strcmp(argv[1], "launch") == 0) return launch(argv);
  return run_rank(argv[1], argc > 2 ? std::atoi(argv[2]) : -1);
}
