// The wheel holds Gloo but hides it behind this macro; without it the header is silently empty.
#define USE_C10D_GLOO
#include "distributed/gloo_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "zerolab/error.h"

#include "distributed/meeting.h"

namespace zerolab {
namespace {

using c10d::ProcessGroupGloo;

/// This machine's address on the way to `host`; empty if there is none but the loopback.
std::string address_towards(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  std::string address;
  const int fd = ::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  auto* generic = reinterpret_cast<sockaddr*>(&local);
  char text[NI_MAXHOST] = "";
  // Connecting a datagram socket sends nothing; it only asks for the route.
  if (fd >= 0 && ::connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
      ::getsockname(fd, generic, &length) == 0 &&
      ::getnameinfo(generic, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
    address = text;
  }
  if (fd >= 0) ::close(fd);
  ::freeaddrinfo(found);
  return address.starts_with("127.") || address == "::1" ? std::string() : address;
}

std::shared_ptr<gloo::transport::Device> make_device(const RankEnvironment& environment) {
  if (environment.local_size == environment.size)
    return ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  if (!environment.interface.empty()) {
    try {
      return ProcessGroupGloo::createDeviceForInterface(environment.interface);
    } catch (const std::exception&) {
      throw ConfigError("ZEROLAB_INTERFACE (or GLOO_SOCKET_IFNAME) = \"" + environment.interface +
                        "\" is not a network interface of this machine with an address: "
                        "choose one that `ip address` lists");
    }
  }
  const std::string address = address_towards(environment.address, environment.port);
  // Rank 0 may know its own name as a loopback address; others must not be sent there.
  return address.empty() ? ProcessGroupGloo::createDefaultDevice()
                         : ProcessGroupGloo::createDeviceForHostname(address);
}

/// Tags tell exchanges apart: each group, and each part that is split off it, has a space of its
/// own, and exchanges that ranks call differently do not meet there but once in 2^25. (Data of
/// another size would end the process on Gloo's own thread; without fingerprints it does.)
constexpr int kTagBits = 25, kMaxParts = 1 << (31 - kTagBits);

/// One c10d group or a part of it, and what became of it.
struct Group {
  c10::intrusive_ptr<ProcessGroupGloo> ranks;
  int rank = 0, size = 1;
  std::vector<int> members;  ///< of a part: its ranks in the whole group; empty: all of them
  double timeout_s = 0;
  uint32_t count = 0;  ///< of exchanges without a fingerprint; the same on all ranks
  int part = 0;
  std::shared_ptr<int> parts = std::make_shared<int>(0);  ///< that were split off
  std::shared_ptr<std::string>
      failure;  ///< the first error, of data or of control; empty while all is well
  std::shared_ptr<Pulse> pulse;  ///< shows when this rank waits; or null

  void check() const {
    if (!failure->empty()) throw PeerError(*failure);
  }
  void break_off(const std::string& reason) {
    if (failure->empty()) *failure = reason;
  }
  int next_tag(uint32_t fingerprint) {
    const uint32_t which = fingerprint != 0 ? fingerprint : ++count;
    return (part << kTagBits) | static_cast<int>(which & ((1U << kTagBits) - 1));
  }
  int in_whole(int peer) const {
    return members.empty() ? peer : members[static_cast<size_t>(peer)];
  }
  std::shared_ptr<Group> split(const std::vector<int>& chosen) const {
    auto result = std::make_shared<Group>(*this);
    result->part = ++*parts;
    if (result->part >= kMaxParts) throw Error("too many groups of ranks were made");
    result->members.clear();
    for (const int r : chosen) result->members.push_back(in_whole(r));
    result->rank = static_cast<int>(std::find(chosen.begin(), chosen.end(), rank) - chosen.begin());
    result->size = static_cast<int>(chosen.size());
    result->count = 0;
    return result;
  }

  [[noreturn]] void fail(const std::exception& error, const char* operation,
                         const std::string& peer) {
    const std::string cause = plain_message(error);
    const bool timed_out = cause.find("Timed out") != std::string::npos ||
                           cause.find("timed out") != std::string::npos;
    if (timed_out) {
      break_off("waited longer than " + std::to_string(static_cast<int64_t>(timeout_s)) +
                " s for " + peer + " in " + operation + ": that rank is stuck or far behind");
    } else {
      break_off("lost the connection to " + peer + " in " + operation + ": that rank has ended (" +
                cause + ")");
    }
    throw PeerError(*failure);
  }
};

/// Groups on one device share its thread.
std::shared_ptr<Group> make_group(const c10::intrusive_ptr<c10d::Store>& store,
                                  const std::string& name, const RankEnvironment& environment,
                                  double timeout_s, std::shared_ptr<std::string> failure,
                                  std::shared_ptr<gloo::transport::Device>& device) {
  auto options = ProcessGroupGloo::Options::create(
      std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000)));
  options->threads = 1;  // nothing that is used here needs more
  auto group = std::make_shared<Group>();
  group->rank = environment.rank;
  group->size = environment.size;
  group->timeout_s = timeout_s;
  group->failure = std::move(failure);
  try {
    if (!device) device = make_device(environment);
    options->devices.push_back(device);
    group->ranks =
        c10::make_intrusive<ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store),
                                              environment.rank, environment.size, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw PeerError("could not connect to the other ranks (" + plain_message(error) +
                    "): if they run on other machines, name the network interface in "
                    "ZEROLAB_INTERFACE");
  }
  return group;
}

/// Tensors on their way between this rank and its peers. Holds them until they have arrived.
class Exchange : public Work {
 public:
  Exchange(std::shared_ptr<Group> group, const char* operation, uint32_t fingerprint)
      : group_(std::move(group)), operation_(operation) {
    group_->check();
    tag_ = group_->next_tag(fingerprint);
  }
  ~Exchange() override {
    // Peers wait for what is dropped here, or have sent into memory that goes away now.
    if (!waited_) group_->break_off(std::string(operation_) + " was given up before its end");
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void receive(const at::Tensor& tensor, int peer) {
    std::vector<at::Tensor> tensors{tensor};
    const int from = group_->in_whole(peer);
    start(from, [&] { return group_->ranks->recv(tensors, from, tag_); });
  }
  void send(const at::Tensor& tensor, int peer) {
    std::vector<at::Tensor> tensors{tensor};
    const int to = group_->in_whole(peer);
    start(to, [&] { return group_->ranks->send(tensors, to, tag_); });
  }
  void wait() override {
    waited_ = true;
    group_->check();
    const Pulse::Waiting waiting(transfers_.empty() ? nullptr : group_->pulse.get());
    for (auto& [peer, transfer] : transfers_)
      guard(peer, [&, transfer = transfer] { transfer->wait(); });
    transfers_.clear();
  }
  void abandon(const std::string& reason) override {
    waited_ = true;
    group_->break_off(reason);
  }

 private:
  template <class Start>
  void start(int peer, const Start& start) {
    guard(peer, [&] { transfers_.emplace_back(peer, start()); });
  }
  template <class Action>
  void guard(int peer, const Action& action) try {
    action();
  } catch (const std::exception& error) {
    group_->fail(error, operation_, "rank " + std::to_string(peer));
  }

  std::shared_ptr<Group> group_;
  const char* operation_;
  int tag_ = 0;
  bool waited_ = false;
  std::vector<std::pair<int, c10::intrusive_ptr<c10d::Work>>> transfers_;
};

/// out[r * S ...] = what rank r sends here; `piece(r)` is what rank r gets from here. Each rank
/// starts with its right-hand neighbour, so that not all of them send to the same one first.
template <class Piece>
std::unique_ptr<Exchange> exchange(const std::shared_ptr<Group>& group, const char* operation,
                                   const at::Tensor& out, const Piece& piece,
                                   uint32_t fingerprint) {
  const at::NoGradGuard no_grad;
  auto work = std::make_unique<Exchange>(group, operation, fingerprint);
  const int64_t length = out.numel() / group->size;
  if (length == 0) return work;
  const auto slot = [&](int r) { return out.narrow(0, r * length, length); };
  for (int step = 1; step < group->size; ++step) {
    const int peer = (group->rank + group->size - step) % group->size;
    work->receive(slot(peer), peer);
  }
  for (int step = 1; step < group->size; ++step) {
    const int peer = (group->rank + step) % group->size;
    work->send(piece(peer), peer);
  }
  const at::Tensor own = slot(group->rank), mine = piece(group->rank);
  if (own.const_data_ptr() != mine.const_data_ptr()) own.copy_(mine);
  return work;
}

/// Numbers on their way; the tensors are views of the vectors.
class GlooControlWork : public ControlWork {
 public:
  GlooControlWork(const std::shared_ptr<Group>& group, std::vector<int64_t> numbers)
      : numbers_(std::move(numbers)), all_(numbers_.size() * static_cast<size_t>(group->size)) {
    const at::Tensor in = view(numbers_);
    exchange_ = exchange(
        group, "a control exchange", view(all_), [&](int) { return in; }, 0);
  }
  std::vector<int64_t> wait() override {
    exchange_->wait();
    return std::move(all_);
  }

 private:
  static at::Tensor view(std::vector<int64_t>& numbers) {
    return at::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, at::kLong);
  }
  std::vector<int64_t> numbers_, all_;
  std::unique_ptr<Exchange> exchange_;
};

class GlooControlChannel : public ControlChannel {
 public:
  explicit GlooControlChannel(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  std::unique_ptr<ControlWork> start_gather(std::vector<int64_t> numbers) override {
    return std::make_unique<GlooControlWork>(group_, std::move(numbers));
  }
  std::unique_ptr<ControlChannel> split(const std::vector<int>& ranks) override {
    return std::make_unique<GlooControlChannel>(group_->split(ranks));
  }

 private:
  std::shared_ptr<Group> group_;
};

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(std::shared_ptr<Group> data, std::unique_ptr<ControlChannel> control)
      : data_(std::move(data)), control_(std::move(control)) {}
  int rank() const override { return data_->rank; }
  int size() const override { return data_->size; }

 protected:
  std::unique_ptr<Work> start_all_to_all(const at::Tensor& out, const at::Tensor& in,
                                         uint32_t fingerprint) override {
    const int64_t length = in.numel() / size();
    return exchange(
        data_, "all_to_all", out, [&](int r) { return in.narrow(0, r * length, length); },
        fingerprint);
  }
  std::unique_ptr<Work> start_all_gather(const at::Tensor& out, const at::Tensor& in,
                                         uint32_t fingerprint) override {
    return exchange(
        data_, "all_gather", out, [&](int) { return in; }, fingerprint);
  }
  void run_broadcast(const at::Tensor& tensor, int root) override {
    const at::NoGradGuard no_grad;
    // Not Gloo's own: c10d's record of collectives races between groups of one process.
    Exchange work(data_, "broadcast", 0);
    if (tensor.numel() > 0) {
      for (int peer = 0; rank() == root && peer < size(); ++peer) {
        if (peer != root) work.send(tensor, peer);
      }
      if (rank() != root) work.receive(tensor, root);
    }
    work.wait();
  }
  std::unique_ptr<ControlWork> start_gather_control(std::vector<int64_t> numbers) override {
    data_->check();
    return control_->start_gather(std::move(numbers));
  }
  std::unique_ptr<Communicator> start_split(const std::vector<int>& ranks) override {
    return std::make_unique<GlooCommunicator>(data_->split(ranks), control_->split(ranks));
  }

 private:
  std::shared_ptr<Group> data_;
  std::unique_ptr<ControlChannel> control_;
};

}  // namespace

std::unique_ptr<ControlChannel> make_control_channel(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const RankEnvironment& environment,
                                                     double timeout_s,
                                                     std::shared_ptr<Pulse> pulse) {
  std::shared_ptr<gloo::transport::Device> device;
  auto group =
      make_group(store, "control", environment, timeout_s, std::make_shared<std::string>(), device);
  group->pulse = std::move(pulse);
  return std::make_unique<GlooControlChannel>(std::move(group));
}

std::unique_ptr<Communicator> make_gloo_communicator(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const RankEnvironment& environment,
                                                     double timeout_s,
                                                     std::shared_ptr<Pulse> pulse) {
  auto failure = std::make_shared<std::string>();
  std::shared_ptr<gloo::transport::Device> device;
  auto control = make_group(store, "control", environment, timeout_s, failure, device);
  auto data = make_group(store, "data", environment, timeout_s, failure, device);
  control->pulse = data->pulse = std::move(pulse);
  return std::make_unique<GlooCommunicator>(
      std::move(data), std::make_unique<GlooControlChannel>(std::move(control)));
}

}  // namespace zerolab
