#include "memory_ranks.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "zerolab/error.h"

namespace {

using Bytes = std::vector<char>;

/// Part of the ranks, channel, exchange, from, to.
using Address = std::tuple<int, int, uint64_t, int, int>;
enum Channel { kData, kControl, kBroadcast };

/// What was sent and not taken yet.
class Post {
 public:
  void send(const Address& address, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    letters_[address].push_back(std::move(bytes));
    changed_.notify_all();
  }
  /// Errors: PeerError if a rank has ended, or nothing comes.
  Bytes take(const Address& address) {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return !letters_[address].empty(); };
    const bool told =
        changed_.wait_for(lock, std::chrono::seconds(20), [&] { return there() || ended_; });
    if (!there()) {
      throw zerolab::PeerError(told ? "lost the connection to a rank: it has ended"
                                    : "waited longer than 20 s for a rank: it is stuck");
    }
    Bytes bytes = std::move(letters_[address].front());
    letters_[address].pop_front();
    if (letters_[address].empty()) letters_.erase(address);
    return bytes;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Address, std::deque<Bytes>> letters_;
  bool ended_ = false;
};

/// Finishes in wait() what was begun.
template <class Base, class Finish>
class LaterWork : public Base {
 public:
  explicit LaterWork(Finish finish) : finish_(std::move(finish)) {}
  auto wait() -> decltype(std::declval<Base&>().wait()) override { return finish_(); }

 private:
  Finish finish_;
};

template <class Base, class Finish>
std::unique_ptr<Base> later(Finish finish) {
  return std::make_unique<LaterWork<Base, Finish>>(std::move(finish));
}

class MemoryCommunicator : public zerolab::Communicator {
 public:
  /// `members`: of the ranks of the run, ascending, the caller among them.
  MemoryCommunicator(std::shared_ptr<Post> post, std::vector<int> members, int self,
                     std::shared_ptr<int> parts, int part)
      : post_(std::move(post)),
        members_(std::move(members)),
        self_(self),
        parts_(std::move(parts)),
        part_(part) {}
  int rank() const override {
    return static_cast<int>(std::find(members_.begin(), members_.end(), self_) - members_.begin());
  }
  int size() const override { return static_cast<int>(members_.size()); }

 protected:
  std::unique_ptr<zerolab::Work> start_all_to_all(const at::Tensor& out, const at::Tensor& in,
                                                  uint32_t fingerprint) override {
    return exchange(out, in, in.nbytes() / members_.size(), in.nbytes() / members_.size(),
                    fingerprint);
  }
  std::unique_ptr<zerolab::Work> start_all_gather(const at::Tensor& out, const at::Tensor& in,
                                                  uint32_t fingerprint) override {
    return exchange(out, in, 0, in.nbytes(), fingerprint);
  }
  void run_broadcast(const at::Tensor& tensor, int root) override {
    const uint64_t number = ++broadcasts_;
    const auto bytes = static_cast<size_t>(tensor.nbytes());
    if (rank() == root) {
      for (int r = 0; r < size(); ++r) {
        if (r != root) post_->send(to(kBroadcast, number, r), copy(tensor, 0, bytes));
      }
      return;
    }
    const Bytes arrived = post_->take(from(kBroadcast, number, root));
    std::memcpy(tensor.mutable_data_ptr(), arrived.data(), bytes);
  }
  std::unique_ptr<zerolab::ControlWork> start_gather_control(
      std::vector<int64_t> numbers) override {
    const uint64_t number = ++controls_;
    const size_t bytes = numbers.size() * sizeof(int64_t);
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      Bytes letter(bytes);
      if (bytes > 0) std::memcpy(letter.data(), numbers.data(), bytes);
      post_->send(to(kControl, number, r), std::move(letter));
    }
    return later<zerolab::ControlWork>([this, number, mine = std::move(numbers)] {
      std::vector<int64_t> all;
      for (int r = 0; r < size(); ++r) {
        std::vector<int64_t> theirs = mine;
        if (r != rank()) {
          const Bytes letter = post_->take(from(kControl, number, r));
          theirs.resize(letter.size() / sizeof(int64_t));
          if (!letter.empty()) std::memcpy(theirs.data(), letter.data(), letter.size());
        }
        all.insert(all.end(), theirs.begin(), theirs.end());
      }
      return all;
    });
  }
  std::unique_ptr<zerolab::Communicator> start_split(const std::vector<int>& ranks) override {
    std::vector<int> chosen;
    for (const int r : ranks) chosen.push_back(members_[static_cast<size_t>(r)]);
    return std::make_unique<MemoryCommunicator>(post_, std::move(chosen), self_, parts_, ++*parts_);
  }

 private:
  static Bytes copy(const at::Tensor& tensor, size_t start, size_t bytes) {
    const char* data = static_cast<const char*>(tensor.const_data_ptr()) + start;
    return {data, data + bytes};
  }
  Address to(Channel channel, uint64_t number, int peer) const {
    return {part_, channel, number, self_, members_[static_cast<size_t>(peer)]};
  }
  Address from(Channel channel, uint64_t number, int peer) const {
    return {part_, channel, number, members_[static_cast<size_t>(peer)], self_};
  }

  /// Rank r gets `bytes` of `in` that begin at r * `stride`.
  std::unique_ptr<zerolab::Work> exchange(const at::Tensor& out, const at::Tensor& in,
                                          size_t stride, size_t bytes, uint32_t fingerprint) {
    const uint64_t number = fingerprint != 0 ? fingerprint : ++exchanges_;
    const auto own = static_cast<size_t>(rank());
    for (size_t r = 0; r < members_.size(); ++r) {
      if (r != own) {
        post_->send(to(kData, number, static_cast<int>(r)), copy(in, r * stride, bytes));
      }
    }
    const Bytes mine = copy(in, own * stride, bytes);
    return later<zerolab::Work>([this, out, bytes, number, own, mine] {
      char* data = static_cast<char*>(out.mutable_data_ptr());
      for (size_t r = 0; r < members_.size(); ++r) {
        const Bytes letter =
            r == own ? mine : post_->take(from(kData, number, static_cast<int>(r)));
        if (bytes > 0) std::memcpy(data + r * bytes, letter.data(), bytes);
      }
    });
  }

  std::shared_ptr<Post> post_;
  std::vector<int> members_;
  int self_;
  std::shared_ptr<int> parts_;  // that this rank was split into; the same on all ranks
  int part_;
  uint64_t exchanges_ = 0, controls_ = 0, broadcasts_ = 0;  // the same on all ranks
};

}  // namespace

void run_in_memory(int num_ranks, const std::function<void(zerolab::Communicator& world)>& body) {
  if (num_ranks == 1) return body(*zerolab::make_single_communicator());
  const auto post = std::make_shared<Post>();
  std::vector<int> everyone;
  for (int rank = 0; rank < num_ranks; ++rank) everyone.push_back(rank);
  std::mutex mutex;
  std::exception_ptr first;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < num_ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          MemoryCommunicator world(post, everyone, rank, std::make_shared<int>(0), 0);
          body(world);
          world.barrier();
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
          post->end();
        }
      });
    }
  }
  if (first) std::rethrow_exception(first);
}
