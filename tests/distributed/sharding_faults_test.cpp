// Ranks that do not do the same: overflow on one, different parts of the model on another.

#include "zerolab/error.h"

#include "awkward_model.h"
#include "catch.h"
#include "small_training.h"

using zerolab::Kind;

namespace {

/// Rank 1 goes through the model in another way.
template <AwkwardModel::Detour kDetour>
std::unique_ptr<zerolab::Model> detouring(int rank) {
  auto model = std::make_unique<AwkwardModel>();
  if (rank == 1) model->take(kDetour);
  return model;
}

std::string failure_of(const Setting& s) {
  try {
    run(s);
  } catch (const zerolab::Error& error) {
    return error.what();
  }
  return "nothing failed";
}

}  // namespace

TEST_CASE("a gradient that is not finite on one rank makes all ranks skip together") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    for (const int ranks : {1, 2, 3, 4}) {
      Setting s{.sharding = strategy, .ranks = ranks, .steps = 2};
      const Outcome before = run(s);
      s.steps = 4;
      s.poison_from = 2;
      const Outcome after = run(s);
      CHECK(after.skipped == std::vector<bool>{false, false, true, true});
      if (!after.parameters.empty()) check_same_tensors(before.parameters, after.parameters);
      check_same_tensors(before.state, after.state);
    }
  }
}

TEST_CASE("an infinite gradient is seen through a wire that rounds") {
  for (const char* wire : {"bf16", "int8"}) {
    for (const char* strategy : {"ddp", "zero2", "zero3"}) {
      const Outcome outcome = run({.sharding = strategy,
                                   .ranks = 2,
                                   .poison_from = 2,
                                   .options = {{"wire_dtype", std::string(wire)}}});
      CHECK(outcome.skipped == std::vector<bool>{false, false, true, true});
    }
  }
}

TEST_CASE("a parameter that is used on one rank only is named, with both ranks") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    for (const int ranks : {2, 3, 4}) {
      Setting s{.sharding = strategy, .ranks = ranks};
      s.model = detouring<AwkwardModel::Detour::kUsesUnused>;
      INFO(title(s));
      const std::string failure = failure_of(s);
      CHECK_THAT(failure, Catch::Matchers::Contains("'unused'"));
      CHECK_THAT(failure, Catch::Matchers::Contains("gradient on rank 1 and none on rank 0"));
      CHECK_THAT(failure, Catch::Matchers::Contains("find_unused_parameters"));
    }
  }
}

TEST_CASE(
    "with find_unused_parameters it counts as zero elsewhere, the same under every strategy") {
  for (const int ranks : {2, 3, 4}) {
    Setting s{.ranks = ranks, .options = {{"find_unused_parameters", true}}};
    s.model = detouring<AwkwardModel::Detour::kUsesUnused>;
    const Outcome reference = run(s);
    for (const std::string& strategy : host().names(Kind::kSharding)) {
      s.sharding = strategy;
      INFO(title(s));
      check_bit_identical(reference, run(s));
    }
  }
}

TEST_CASE("a unit that one rank skips ends in an error that names both, not in a hang") {
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    for (const int ranks : {2, 3, 4}) {
      Setting s{.sharding = strategy, .ranks = ranks};
      s.model = detouring<AwkwardModel::Detour::kSkipsBlock>;
      INFO(title(s));
      const std::string failure = failure_of(s);
      const bool names_ranks = failure.find("rank 0") != std::string::npos &&
                               failure.find("rank 1") != std::string::npos;
      CHECK(names_ranks);
      CHECK_THAT(failure, Catch::Matchers::Contains("block.1"));
    }
  }
}
