// Communicator::split: groups of ranks within the ranks of a run.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>

#include "zerolab/communicator.h"
#include "zerolab/error.h"

#include "catch.h"
#include "distributed/world.h"

using zerolab::Communicator;
using zerolab::run_on_threads;

namespace {

using Groups = std::vector<std::vector<int>>;

/// Catch's own assertions may not be used on several threads at once.
void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("does not hold: " + what);
}

const std::vector<int>& group_of(int rank, const Groups& groups) {
  return *std::find_if(groups.begin(), groups.end(), [&](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  });
}

/// A group as one of its ranks sees it.
struct Part {
  std::vector<int> members;
  std::unique_ptr<Communicator> ranks;
  at::Tensor out;
  std::unique_ptr<zerolab::Work> work;

  Part(Communicator& world, const Groups& groups)
      : members(group_of(world.rank(), groups)), ranks(world.split(members)) {}
  int64_t size() const { return static_cast<int64_t>(members.size()); }
};

constexpr int64_t kLength = 1000;

void start_gather(Part& part, int rank) {
  part.out = at::zeros({part.size() * kLength});
  part.work = part.ranks->all_gather(part.out, at::full({kLength}, rank + 0.5F));
}

void finish_gather(Part& part, int rank) {
  part.work->wait();
  for (int64_t r = 0; r < part.size(); ++r) {
    const at::Tensor piece = part.out.narrow(0, r * kLength, kLength);
    const float expected = static_cast<float>(part.members[static_cast<size_t>(r)]) + 0.5F;
    require((piece == expected).all().item<bool>(), "a member's piece");
  }
  const auto numbers = part.ranks->gather_control(std::vector<int64_t>{rank});
  require(std::equal(numbers.begin(), numbers.end(), part.members.begin(), part.members.end()),
          "control traffic of the part");
}

}  // namespace

TEST_CASE("groups that are split off exchange among themselves, and count together") {
  const auto [num_ranks, first, second] =
      GENERATE(std::tuple<int, Groups, Groups>{1, {{0}}, {{0}}},
               std::tuple<int, Groups, Groups>{2, {{0}, {1}}, {{0, 1}}},
               std::tuple<int, Groups, Groups>{3, {{0, 2}, {1}}, {{0}, {1, 2}}},
               std::tuple<int, Groups, Groups>{4, {{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}});
  run_on_threads(num_ranks, [&, first = first, second = second](Communicator& world) {
    Part parts[] = {{world, first}, {world, second}};
    int64_t sent = 0;
    for (const Part& part : parts) {
      require(part.ranks->size() == part.size(), "size of the part");
      require(part.members[static_cast<size_t>(part.ranks->rank())] == world.rank(), "rank in it");
      sent += 3 * (part.size() - 1) * kLength * 4;
    }
    for (int round = 0; round < 3; ++round) {
      for (Part& part : parts) start_gather(part, world.rank());
      world.barrier();
      for (Part& part : parts) finish_gather(part, world.rank());
    }
    require(world.payload_bytes() == sent, "counted where it was split off");
    require(parts[0].ranks->payload_bytes() == sent, "and by the part");
  });
}

TEST_CASE("ranks of a group that call different collectives learn which, and others go on") {
  std::string messages[4];
  const auto body = [&](Communicator& world) {
    const auto part = world.split(group_of(world.rank(), {{0, 1}, {2, 3}}));
    const int64_t length = world.rank() == 3 ? 5 : 4;
    try {
      part->all_gather(at::empty({2 * length}), at::ones({length}), "inside")->wait();
      messages[world.rank()] = "no error";
    } catch (const zerolab::PeerError& error) {
      messages[world.rank()] = error.what();
    }
  };
  // The others went on; the barrier that ends the test does not hold for ranks that gave up.
  CHECK_THROWS_AS(run_on_threads(4, body), zerolab::PeerError);
  CHECK(messages[0] == "no error");
  CHECK(messages[1] == "no error");
  CHECK(messages[2].find("rank 3 calls all_gather of 5 Float (inside)") != std::string::npos);
  CHECK(messages[3] == messages[2]);
}

TEST_CASE("a group that is not an ascending part with the caller in it is refused") {
  const auto alone = zerolab::make_single_communicator();
  const std::vector<std::vector<int>> refused{{}, {1}, {0, 1}, {-1, 0}, {0, 0}};
  for (const auto& ranks : refused) CHECK_THROWS_AS(alone->split(ranks), zerolab::PluginError);
}
