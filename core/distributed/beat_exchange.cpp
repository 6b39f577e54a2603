#include "distributed/beat_exchange.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "distributed/meeting.h"

namespace zerolab {
namespace {

constexpr double kConnect = 60;  // seconds
// Seconds that the store's host stays for the others: they look twice a second, and then wait one
// more in case their main thread notices by itself.
constexpr double kLinger = 2;
constexpr int kNumSuccessors = 8;  // ranks after this one whose beats it reads
constexpr auto kPatience = std::chrono::milliseconds(1000);  // for the last words

std::string key(int rank) {
  return "beat/" + std::to_string(rank);
}

std::vector<int> watched(int rank, int size) {
  std::vector<int> ranks;
  for (int step = 1; step < size && step <= kNumSuccessors; ++step)
    ranks.push_back((rank + step) % size);
  if (rank != 0 && std::find(ranks.begin(), ranks.end(), 0) == ranks.end()) ranks.push_back(0);
  return ranks;
}

std::vector<uint8_t> encode(const PeerBeat& beat) {
  const std::string text = std::to_string(beat.number) + (beat.hosts_store ? " 1" : " 0") +
                           (beat.began ? " 1 " : " 0 ") + beat.where;
  return {text.begin(), text.end()};
}

PeerBeat decode(int rank, const std::vector<uint8_t>& value) {
  PeerBeat beat;
  std::istringstream text(std::string(value.begin(), value.end()));
  text >> beat.number >> beat.hosts_store >> beat.began;
  beat.rank = rank;
  std::getline(text >> std::ws, beat.where);
  return beat;
}

}  // namespace

/// What both threads know. Owned by both: the one that asks the store may outlive its owner.
struct BeatExchange::Shared {
  RankEnvironment environment;
  std::shared_ptr<const Pulse> pulse;
  std::chrono::milliseconds interval{};
  std::unique_ptr<Meeting> meeting;  ///< the thread's own connection

  std::mutex mutex;
  std::condition_variable changed;
  Round round;
  bool leaving = false;     ///< the thread is to end
  bool concluding = false;  ///< and to report `cause`
  bool ended = false;       ///< it has
  std::optional<Failure> cause, first;

  std::vector<int> present, awaited;  ///< ranks to read: with a beat, and without one yet
  int64_t number = 0;

  void send(int64_t beat_number) {
    const auto reading = pulse->read();
    PeerBeat beat;
    beat.number = beat_number;
    beat.hosts_store = environment.hosts_store;
    beat.began = reading.beats > 0;
    beat.where = place(reading.step, reading.phase ? reading.phase : "");
    meeting->store()->set(key(environment.rank), encode(beat));
  }
  std::vector<PeerBeat> receive() {
    std::erase_if(awaited, [&](int rank) {
      const bool here = meeting->store()->check({key(rank)});
      if (here) present.push_back(rank);
      return here;
    });
    std::vector<std::string> keys;
    for (const int rank : present) keys.push_back(key(rank));
    std::vector<PeerBeat> beats;
    if (keys.empty()) return beats;
    const auto values = meeting->store()->multiGet(keys);
    for (size_t i = 0; i < values.size(); ++i) beats.push_back(decode(present[i], values[i]));
    return beats;
  }
  void exchange() {
    send(++number);
    auto peers = receive();
    auto reported = meeting->failure();
    const std::lock_guard lock(mutex);
    ++round.count;
    round.peers = std::move(peers);
    round.reported = std::move(reported);
  }
  /// The last words. The mutex is not held: the store may be slow.
  void conclude() {
    if (cause) meeting->report(*cause);
    // Whoever is not the host tells it that it has read the cause.
    auto found = environment.hosts_store ? meeting->failure() : meeting->await_failure(0);
    {
      const std::lock_guard lock(mutex);
      first = std::move(found);
    }
    if (environment.hosts_store) meeting->linger(environment.size - 1, kLinger);
  }
};

BeatExchange::BeatExchange(const RankEnvironment& environment, std::shared_ptr<const Pulse> pulse,
                           std::chrono::milliseconds interval)
    : shared_(std::make_shared<Shared>()) {
  shared_->environment = environment;
  shared_->pulse = std::move(pulse);
  shared_->interval = interval;
  shared_->awaited = watched(environment.rank, environment.size);
  RankEnvironment guest = environment;
  guest.hosts_store = false;
  shared_->meeting = Meeting::reach(guest, kConnect);
  std::thread([shared = shared_] { run(shared); }).detach();
}

BeatExchange::~BeatExchange() {
  std::unique_lock lock(shared_->mutex);
  shared_->leaving = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, kPatience, [&] { return shared_->ended; });
}

void BeatExchange::run(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  try {
    while (!shared->leaving) {
      lock.unlock();
      shared->exchange();
      lock.lock();
      shared->changed.wait_for(lock, shared->interval, [&] { return shared->leaving; });
    }
    lock.unlock();
    if (shared->concluding) {
      shared->conclude();
    } else {
      shared->send(PeerBeat::kLeft);
    }
  } catch (const std::exception&) {
    // The store is gone with its host.
  }
  if (lock.owns_lock()) lock.unlock();
  shared->meeting.reset();
  lock.lock();
  shared->round.over = true;
  shared->ended = true;
  shared->changed.notify_all();
}

Round BeatExchange::round() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->round;
}

std::optional<Failure> BeatExchange::conclude(const std::optional<Failure>& cause) {
  std::unique_lock lock(shared_->mutex);
  shared_->cause = cause;
  shared_->concluding = shared_->leaving = true;
  shared_->changed.notify_all();
  const auto patience = kPatience + std::chrono::milliseconds(static_cast<int>(kLinger * 1000));
  shared_->changed.wait_for(lock, patience, [&] { return shared_->ended; });
  return shared_->first;
}

}  // namespace zerolab
