// The bytes per parameter of the ZeRO paper (arXiv 1910.02054, figure 1) and those of all-float32
// training, as the installed strategies predict them for 7.5 billion parameters.

#include <string>

#include "built_plugins.h"
#include "catch.h"
#include "plan/plan.h"

using zerolab::Kind;

namespace {

std::unique_ptr<zerolab::Sharding> make(const std::string& name) {
  const zerolab::PluginEntry& entry = host().entry(Kind::kSharding, name);
  return std::unique_ptr<zerolab::Sharding>(
      static_cast<zerolab::Sharding*>(entry.create(entry.schema().defaults())));
}

/// 7.5e9 elements in 100 units.
void declare(zerolab::Parameters& parameters) {
  for (int unit = 0; unit < 100; ++unit) {
    const std::string name = "blocks." + std::to_string(unit);
    parameters.begin_unit(name);
    parameters.declare(name + ".matrix", {7500, 10000}, zerolab::Init::normal(0, 1));
  }
}

/// Bytes per parameter of parameters, gradients and optimizer together: `whole` on every rank and
/// `shared` among them.
struct Formula {
  std::string strategy;
  double whole, shared;
};

void check(const Formula& formula, at::ScalarType dtype, int num_ranks) {
  zerolab::Parameters parameters;
  declare(parameters);
  const auto count = static_cast<double>(parameters.total_numel());
  zerolab::PrecisionPolicy precision;
  precision.parameter_dtype = precision.gradient_dtype = dtype;
  const auto footprint =
      make(formula.strategy)
          ->footprint({parameters, num_ranks, precision, 2, 1, zerolab::ReduceEvery::kMicroBatch});
  REQUIRE(footprint);
  INFO(formula.strategy << " on " << num_ranks << " ranks");
  const auto states = static_cast<double>(footprint->held.states());
  const double expected = count * (formula.whole + formula.shared / num_ranks);
  CHECK(states >= expected);
  CHECK(states <= expected * 1.0001);  // padding
}

}  // namespace

TEST_CASE("float32 takes 16, 8 + 8/N, 4 + 12/N and 16/N bytes a parameter") {
  for (const Formula& formula :
       {Formula{"ddp", 16, 0}, {"zero1", 8, 8}, {"zero2", 4, 12}, {"zero3", 0, 16}}) {
    for (int ranks : {2, 3, 8, 64}) check(formula, at::kFloat, ranks);
  }
}

TEST_CASE("low precision takes 16, 4 + 12/N, 2 + 14/N and 16/N bytes a parameter") {
  for (const Formula& formula :
       {Formula{"ddp", 16, 0}, {"zero1", 4, 12}, {"zero2", 2, 14}, {"zero3", 0, 16}}) {
    for (int ranks : {2, 3, 8, 64}) {
      check(formula, at::kBFloat16, ranks);
      check(formula, at::kHalf, ranks);
    }
  }
}

TEST_CASE("every rank of a strategy moves 2P (N - 1) / N elements, with sharded parameters 3P") {
  zerolab::Parameters parameters;
  declare(parameters);
  const auto count = static_cast<double>(parameters.total_numel());
  for (const Formula& formula :
       {Formula{"ddp", 2, 0}, {"zero1", 2, 0}, {"zero2", 2, 0}, {"zero3", 3, 0}}) {
    for (int ranks : {2, 8, 64}) {
      const auto footprint =
          make(formula.strategy)
              ->footprint({parameters, ranks, {}, 2, 1, zerolab::ReduceEvery::kMicroBatch});
      REQUIRE(footprint);
      INFO(formula.strategy << " on " << ranks << " ranks");
      const double expected = formula.whole * count * 4 * (ranks - 1) / ranks;
      CHECK(static_cast<double>(footprint->moved_bytes()) == Approx(expected).epsilon(1e-4));
    }
  }
}
