#include "process.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace zerolab_test {
namespace {

constexpr int kPatience_ms = 60000;  // a program that hangs fails its test after this

}  // namespace

Process::Process(const std::vector<std::string>& command,
                 const std::map<std::string, std::string>& more) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    for (const auto& [name, value] : more) ::setenv(name.c_str(), value.c_str(), 1);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  fd_ = ends[0];
}

Process::~Process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(fd_);
}

bool Process::read_more(int timeout_ms) {
  pollfd ready{};
  ready.fd = fd_;
  ready.events = POLLIN;
  if (::poll(&ready, 1, timeout_ms) <= 0)
    throw std::runtime_error("the program hangs after: " + output_);
  char buffer[4096];
  const ssize_t length = ::read(fd_, buffer, sizeof buffer);
  if (length > 0) output_.append(buffer, static_cast<size_t>(length));
  return length > 0;
}

void Process::wait_for_text(const std::string& text, int times) {
  while (count(output_, text) < times) {
    if (!read_more(kPatience_ms))
      throw std::runtime_error("ended without \"" + text + "\": " + output_);
  }
}

int Process::wait() {
  while (read_more(kPatience_ms)) {
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Process::signal(int number) const {
  ::kill(pid_, number);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

bool has_ended(pid_t pid) {
  // A process closes its files a little before it is gone.
  for (int left_ms = kPatience_ms; left_ms > 0; left_ms -= 10) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    if (text.empty() || text.substr(text.rfind(')'), 3) == ") Z") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

HeldPort::HeldPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd_, generic, length) != 0 || ::listen(fd_, 1) != 0 ||
      ::getsockname(fd_, generic, &length) != 0)
    throw std::runtime_error("no port is free");
  port_ = ntohs(address.sin_port);
}

HeldPort::~HeldPort() {
  ::close(fd_);
}

int free_port() {
  return HeldPort().port();
}

}  // namespace zerolab_test
