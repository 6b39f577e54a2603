#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "distributed/gloo_communicator.h"
#include "distributed/meeting.h"
#include "distributed/world.h"

namespace zerolab {
namespace {

constexpr double kTimeout = 20;  // seconds: a test that hangs fails soon

/// The first exception of any thread: those after it are mostly about the connection that it broke.
class FirstException {
 public:
  void keep(std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = std::move(exception);
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

void run_rank(const RankEnvironment& environment, const std::function<void(Communicator&)>& body,
              FirstException& first) {
  std::unique_ptr<Communicator> world;
  try {
    auto meeting = Meeting::reach(environment, kTimeout);
    world = make_gloo_communicator(meeting->store(), environment, kTimeout);
    body(*world);
    world->barrier();  // nobody closes a connection that another one still reads from
  } catch (...) {
    // Kept before the communicator goes, because that makes the others throw.
    first.keep(std::current_exception());
  }
}

}  // namespace

void run_on_threads(int num_ranks, const std::function<void(Communicator& world)>& body) {
  if (num_ranks == 1) {
    body(*make_single_communicator());
    return;
  }
  const auto meeting = Meeting::host_on_loopback(0);
  FirstException first;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < num_ranks; ++rank) {
      RankEnvironment environment;
      environment.rank = environment.local_rank = rank;
      environment.size = environment.local_size = num_ranks;
      environment.port = meeting->port();
      threads.emplace_back([environment, &body, &first] { run_rank(environment, body, first); });
    }
  }
  first.rethrow();
}

}  // namespace zerolab
