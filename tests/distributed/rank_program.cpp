// What launch_test starts: a launcher of itself (`launch N PORT RESTARTS WAIT`, then as a rank), or
// a rank that acts on a word (`ACTION [RANK [MORE]]`).
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <unistd.h>

#include <ATen/ATen.h>

#include "zerolab/error.h"

#include "distributed/stop_signals.h"
#include "distributed/world.h"

using namespace zerolab;

namespace {

constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
constexpr double kStall = 2;  // seconds: a busy machine may keep a rank waiting for one
constexpr int kBeats = 80;    // of a slow rank, so far apart:
constexpr auto kBeat = std::chrono::milliseconds(50);

struct Order {
  std::string action;
  int chosen = -1;
  std::string more;
};

void say(const std::string& line) {
  const std::string text =
      line + "\n";  // in one write, so that ranks do not cut each other's lines
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) std::abort();
}

void say_ready() {
  say("ready " + std::to_string(::getpid()) + ".");
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
  say_ready();
  for (;;) ::pause();
}

/// Goes on for a while after it was told to stop, so that more signals can come.
int stop_late() {
  static volatile std::sig_atomic_t told = 0;
  std::signal(SIGTERM, [](int) { told = told + 1; });
  say_ready();
  while (told == 0) std::this_thread::sleep_for(kBeat);
  say("told to stop");
  std::this_thread::sleep_for(10 * kBeat);
  for (int again = 1; again < told; ++again) say("told to stop");
  return kStopped;
}

/// Steps until it is asked to stop; `for_ever`: says so at each step then, and goes on.
int step_until_stopped(bool alone, bool for_ever) {
  const StopSignals signals(alone);
  say_ready();
  while (true) {
    std::this_thread::sleep_for(kBeat);
    if (!StopSignals::requested()) continue;
    say("stops at a step edge, signal " + std::to_string(StopSignals::signal()));
    if (!for_ever) return kStopped;
  }
}

void describe_process() {
  char target[64] = "";
  const auto length = ::readlink("/proc/self/fd/0", target, sizeof target - 1);
  say(std::string("input ") + (length > 0 ? target : "unknown") + ", own group " +
      (::getpgrp() == ::getpid() ? "yes" : "no"));
}

/// Counts this start in a file; the first two die.
void die_twice(const std::string& file) {
  std::ofstream(file, std::ios::app) << '.';
  if (std::filesystem::file_size(file) <= 2) std::raise(SIGKILL);
}

void work(World& world, int beats) {
  for (int i = 0; i < beats; ++i) {
    std::this_thread::sleep_for(kBeat);
    world.pulse().beat(12, "backward");
  }
}

/// All ranks are watched; what the chosen one does while the others wait for it.
void act_watched(World& world, const Order& order) {
  const bool chosen = world.communicator().rank() == order.chosen;
  world.watch(kStall);
  if (order.action == "unborn") {
    if (chosen) std::this_thread::sleep_for(kBeats * kBeat);
    return;
  }
  world.pulse().beat(12, "backward");
  if (order.action == "freeze") work(world, kBeats / 3);  // long enough to be heard of
  world.communicator().barrier();
  if (!chosen) return;
  if (order.action == "slow") {
    say_ready();
    work(world, kBeats);
    return;
  }
  if (order.action == "hold") {
    world.report_failure(static_cast<int>(ExitCode::kStore), "the disk is full");
  } else if (order.action == "freeze") {
    say_ready();
    std::raise(SIGSTOP);
  }
  sleep_until_stopped(-1);
}

/// What the chosen rank does; the others wait for it in a collective.
int act(World& world, const Order& order) {
  Communicator& ranks = world.communicator();
  const std::string& action = order.action;
  const bool chosen = ranks.rank() == order.chosen;
  if (action == "add") {
    const at::Tensor out = at::empty({1}), in = at::full({ranks.size()}, ranks.rank() + 1.0F);
    ranks.reduce_scatter(out, in)->wait();
    say("sum " + std::to_string(out.item<float>()));
  } else if (action == "describe") {
    describe_process();
  } else if (action == "part") {
    return chosen ? 0 : kStopped;
  } else if (action == "flaky") {
    const std::string& folder = world.environment().restart_of;
    if (ranks.rank() == 0) say("going on from " + (folder.empty() ? "nothing" : folder));
    if (ranks.rank() == 0) world.announce_run_folder("/runs/a-1");
    ranks.barrier();
    if (chosen) die_twice(order.more);
  } else if (action == "spoil") {
    step_until_stopped(false, false);
    throw StoreError("the disk is full");
  } else if (chosen && action == "fail") {
    throw StoreError("the disk is full");
  } else if (chosen && action == "code") {
    throw Error("it went wrong", static_cast<ExitCode>(std::stoi(order.more)));
  } else if (chosen && action == "exit") {
    ::_exit(9);
  } else if (chosen && action == "kill") {
    std::raise(SIGKILL);
  } else if (chosen && action == "stick") {
    sleep_until_stopped(-1);
  } else if (action == "loop" || action == "freeze" || action == "slow" || action == "unborn" ||
             action == "hold") {
    act_watched(world, order);
  }
  world.leave();
  return 0;
}

/// Actions of ranks that do not meet.
int act_alone(const RankEnvironment& environment, const std::string& action) {
  if (action == "hang") return sleep_until_stopped(-1);
  if (action == "stop") return sleep_until_stopped(kStopped);
  if (action == "patient") return stop_late();
  if (action == "step" || action == "stepless")
    return step_until_stopped(environment.source == "single", action == "stepless");
  if (action == "defenceless") {
    say_ready();
    for (;;) ::pause();
  }
  return -1;
}

int run_rank(const Order& order) {
  const RankEnvironment environment = read_rank_environment();
  if (const int code = act_alone(environment, order.action); code >= 0) return code;
  const auto end = [&](const std::string& message, int code, bool told) {
    if (environment.source != "zerolab" || !told)
      std::fprintf(stderr, "rank %d ends: %s\n", environment.rank, message.c_str());
    return code;
  };
  std::unique_ptr<World> world;
  try {
    if (order.action == "configuration") throw ConfigError("a.toml:1:1: nothing is right");
    WorldOptions options;
    options.timeout_s = order.action == "stick" ? 1 : 60;
    options.join_timeout_s = 60;
    if (order.action == "gpu") options.device = "cuda";
    world = World::join(environment, options);
    return act(*world, order);
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
  options.restarts = std::atoi(arguments[4]);
  options.restart_wait_s = std::atof(arguments[5]);
  const bool missing = std::strcmp(arguments[6], "missing") == 0;
  options.command = {missing ? "/nowhere/program" : arguments[0]};
  for (char** word = arguments + 6; *word; ++word) options.command.emplace_back(*word);
  try {
    return launch_local_ranks(options);
  } catch (const Error& error) {
    std::fprintf(stderr, "zerolab: error: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 7 && std::strcmp(argv[1], "launch") == 0) return launch(argv);
  return run_rank(
      {argv[1], argc > 2 ? std::atoi(argv[2]) : -1, argc > 3 ? argv[3] : std::string()});
}
