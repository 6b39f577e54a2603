#include "distributed/meeting.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "zerolab/error.h"

namespace zerolab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kOwnFailure = "failure/own";
constexpr const char* kPeerFailure = "failure/peer";
constexpr const char* kLooked = "failure/looked";
constexpr const char* kRunFolder = "run_folder";
constexpr auto kPollInterval = std::chrono::milliseconds(10);

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

std::string seconds_text(double seconds) {
  return std::to_string(static_cast<int64_t>(seconds + 0.5)) + " s";
}

ConfigError port_in_use(int port) {
  return ConfigError(
      "port " + std::to_string(port) +
      " of this machine is in use: choose another one (--port, or MASTER_PORT on all "
      "ranks), or end the program that holds it");
}

/// A socket bound to 127.0.0.1, so that nobody outside this machine reaches the store. Returns it
/// and its port.
std::pair<int, int> bind_on_loopback(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw Error(std::string("cannot open a socket: ") + std::strerror(errno));
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  // Listening at once: two servers may both bind under SO_REUSEADDR, but only one may listen.
  if (::bind(fd, generic, length) != 0 || ::listen(fd, SOMAXCONN) != 0 ||
      ::getsockname(fd, generic, &length) != 0) {
    const int reason = errno;
    ::close(fd);
    if (reason == EADDRINUSE) throw port_in_use(port);
    throw ConfigError("port " + std::to_string(port) + " cannot be used: " + std::strerror(reason) +
                      "; choose another one with --port");
  }
  return {fd, ntohs(address.sin_port)};
}

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string list_missing(c10d::Store& store, int size) {
  std::string missing;
  for (int r = 0; r < size; ++r) {
    if (!store.check({"here/" + std::to_string(r)}))
      missing += (missing.empty() ? "" : ", ") + std::to_string(r);
  }
  return missing;
}

}  // namespace

std::string plain_message(const std::exception& error) {
  const auto* from_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = from_torch ? from_torch->what_without_backtrace() : error.what();
  if (const size_t trace = text.find("\nException raised from"); trace != std::string::npos)
    text.resize(trace);
  if (text.starts_with("[")) {  // "[/path/file.cc:547] Connection closed by peer"
    const size_t close = text.find("] ");
    if (close != std::string::npos && text.substr(0, close).find(':') != std::string::npos)
      text.erase(0, close + 2);
  }
  for (char& c : text) c = c == '\n' ? ' ' : c;
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

Meeting::Meeting(c10::intrusive_ptr<c10d::Store> store, int port, const std::string& prefix)
    : store_(c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(store))), port_(port) {}

std::unique_ptr<Meeting> Meeting::host_on_loopback(int port) {
  auto [fd, bound] = bind_on_loopback(port);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(bound);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = fd;  // the store closes it
  auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  return std::unique_ptr<Meeting>(new Meeting(std::move(store), bound, RankEnvironment().meeting));
}

std::unique_ptr<Meeting> Meeting::reach(const RankEnvironment& environment, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(environment.port);
  options.isServer = environment.hosts_store;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout_s);
  if (environment.hosts_store && environment.local_size == environment.size &&
      environment.address == "127.0.0.1")
    options.masterListenFd = bind_on_loopback(environment.port).first;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(environment.address, options);
    return std::unique_ptr<Meeting>(
        new Meeting(std::move(store), environment.port, environment.meeting));
  } catch (const std::exception& error) {
    const std::string cause = plain_message(error);
    if (cause.find("EADDRINUSE") != std::string::npos) throw port_in_use(environment.port);
    throw PeerError("could not reach the store of rank 0 at " + environment.address + ":" +
                    std::to_string(environment.port) + " within " + seconds_text(timeout_s) + " (" +
                    cause + "): is rank 0 running, and is that address right?");
  }
}

void Meeting::wait_for_all(const RankEnvironment& environment, double timeout_s) try {
  const auto deadline = Clock::now() + milliseconds(timeout_s);
  std::vector<std::string> here;
  for (int r = 0; r < environment.size; ++r) here.push_back("here/" + std::to_string(r));
  store_->set(here[static_cast<size_t>(environment.rank)], bytes("yes"));
  while (!store_->check(here)) {
    if (auto reported = failure())
      throw PeerError("rank " + std::to_string(reported->rank) + ": " + reported->message);
    if (Clock::now() > deadline) {
      throw PeerError("waited " + seconds_text(timeout_s) +
                      " for the other ranks, and these did not come: " +
                      list_missing(*store_, environment.size) + "; start all " +
                      std::to_string(environment.size) + " of them");
    }
    std::this_thread::sleep_for(kPollInterval);
  }
} catch (const Error&) {
  throw;
} catch (const std::exception& error) {
  throw PeerError("lost the store where ranks meet (" + plain_message(error) +
                  "): the run has ended");
}

void Meeting::report(const Failure& failure) try {
  const std::string value = std::to_string(failure.rank) + " " + std::to_string(failure.exit_code) +
                            " " + failure.message;
  store_->compareSet(failure.blames_peer() ? kPeerFailure : kOwnFailure, {}, bytes(value));
} catch (const std::exception&) {
  return;  // the store is gone with its host: nobody is left to tell
}

std::optional<Failure> Meeting::read(const std::string& key) {
  if (!store_->check({key})) return std::nullopt;
  const auto value = store_->get(key);
  const std::string text(value.begin(), value.end());
  const size_t second = text.find(' ') + 1, third = text.find(' ', second) + 1;
  Failure failure{std::stoi(text), std::stoi(text.substr(second)), text.substr(third)};
  failure.stalled = key == kOwnFailure && failure.exit_code == static_cast<int>(ExitCode::kPeer);
  return failure;
}

std::optional<Failure> Meeting::failure() try {
  auto own = read(kOwnFailure);
  return own ? own : read(kPeerFailure);
} catch (const std::exception&) {
  return std::nullopt;
}

std::optional<Failure> Meeting::await_failure(double seconds) try {
  const auto deadline = Clock::now() + milliseconds(seconds);
  while (!store_->check({kOwnFailure}) && Clock::now() < deadline)
    std::this_thread::sleep_for(kPollInterval);
  auto found = failure();
  store_->add(kLooked, 1);
  return found;
} catch (const std::exception&) {
  return std::nullopt;
}

void Meeting::linger(int others, double seconds) try {
  const auto deadline = Clock::now() + milliseconds(seconds);
  while (store_->add(kLooked, 0) < others && Clock::now() < deadline)
    std::this_thread::sleep_for(kPollInterval);
} catch (const std::exception&) {
  return;
}

void Meeting::announce_run_folder(const std::string& path) try {
  store_->set(kRunFolder, bytes(path));
} catch (const std::exception&) {
  return;
}

std::string Meeting::run_folder() try {
  if (!store_->check({kRunFolder})) return {};
  const auto value = store_->get(kRunFolder);
  return {value.begin(), value.end()};
} catch (const std::exception&) {
  return {};
}

}  // namespace zerolab
