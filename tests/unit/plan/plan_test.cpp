#include "plan/plan.h"

#include "zerolab/error.h"

#include "catch.h"
#include "idle_sharding.h"

using zerolab::CollectiveKind;
using zerolab::Footprint;
using zerolab::FootprintRequest;

namespace {

/// Says what it is told to say; runs nothing.
class Spoken : public IdleSharding {
 public:
  Spoken(int64_t held, int64_t moved_each) : held_(held), moved_each_(moved_each) {}
  std::optional<Footprint> footprint(const FootprintRequest& request) const override {
    if (request.num_ranks % 2 != 0) throw zerolab::ConfigError("needs an even number of ranks.");
    const bool once = request.reduce_every == zerolab::ReduceEvery::kStep;
    Footprint footprint;
    footprint.held.parameters = held_;
    footprint.of(CollectiveKind::kReduceScatter).add(once ? 1 : request.micro_batches, moved_each_);
    return footprint;
  }

 private:
  int64_t held_, moved_each_;
};

/// A strategy of a third party that predicts nothing.
class Silent : public Spoken {
 public:
  Silent() : Spoken(0, 0) {}
  std::optional<Footprint> footprint(const FootprintRequest&) const override {
    return std::nullopt;
  }
};

std::vector<zerolab::PlanCandidate> candidates() {
  std::vector<zerolab::PlanCandidate> list;
  list.push_back({"large", true, std::make_unique<Spoken>(1000, 10), ""});
  list.push_back({"middle", false, std::make_unique<Spoken>(500, 10), ""});
  list.push_back({"small", false, std::make_unique<Spoken>(100, 30), ""});
  list.push_back({"silent", false, std::make_unique<Silent>(), ""});
  list.push_back({"broken", false, nullptr, "cannot be made."});
  return list;
}

std::vector<zerolab::PlanRow> rows(int num_ranks, int64_t micro_batches,
                                   zerolab::ReduceEvery reduce_every) {
  const zerolab::Parameters parameters;
  return zerolab::plan_rows(candidates(),
                            {parameters, num_ranks, {}, 2, micro_batches, reduce_every});
}

std::vector<zerolab::PlanRow> rows(int num_ranks = 2, int64_t micro_batches = 1) {
  return rows(num_ranks, micro_batches, zerolab::ReduceEvery::kMicroBatch);
}

}  // namespace

TEST_CASE("every candidate has a row, with a footprint or the reason why not") {
  const auto plan = rows();
  REQUIRE(plan.size() == 5);
  CHECK(plan[0].name == "large");
  CHECK(plan[0].own);
  CHECK(plan[0].footprint->held.total() == 1000);
  CHECK_FALSE(plan[1].own);
  CHECK_FALSE(plan[3].footprint);
  CHECK(plan[3].why_not == "states no footprint");
  CHECK_FALSE(plan[4].footprint);
  CHECK(plan[4].why_not == "cannot be made.");
}

TEST_CASE("a strategy that cannot run on so many ranks says so in its row") {
  const auto plan = rows(3);
  CHECK_FALSE(plan[0].footprint);
  CHECK(plan[0].why_not == "needs an even number of ranks.");
  CHECK(plan[3].why_not == "states no footprint");
}

TEST_CASE("a row says what reducing once a step would save under accumulation") {
  CHECK(rows(2, 1)[0].saved_by_reducing_every_step == 0);
  CHECK(rows(2, 4)[0].saved_by_reducing_every_step == 30);
  CHECK(rows(2, 4, zerolab::ReduceEvery::kStep)[0].saved_by_reducing_every_step == 0);
}

TEST_CASE("the cheapest row moves least, and of those that move equally much holds least") {
  const auto plan = rows();
  CHECK(zerolab::cheapest(plan, 0, std::nullopt)->name == "middle");
  CHECK(zerolab::cheapest(plan, 0, 500)->name == "middle");
  CHECK(zerolab::cheapest(plan, 1, 500)->name == "small");
  CHECK(zerolab::cheapest(plan, 0, 99) == nullptr);
  CHECK(zerolab::smallest(plan)->name == "small");
  CHECK(zerolab::cheapest(rows(3), 0, std::nullopt) == nullptr);
  CHECK(zerolab::smallest(rows(3)) == nullptr);
}
