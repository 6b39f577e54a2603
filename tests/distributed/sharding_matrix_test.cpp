// Promise 1: at the same number of ranks every strategy gives the same bits: losses, norms,
// parameters, states; and what it holds and moves is what it said.
//
// The reference of each row is ddp with overlap and without activation checkpointing: strategies,
// overlap and checkpointing may not change a bit of it. It runs over Gloo, the others through
// memory.

#include <array>

#include "catch.h"
#include "small_training.h"

namespace {

using zerolab::Kind;

constexpr size_t kNumFactors = 6;
using Levels = std::array<bool, kNumFactors>;

Setting setting(int ranks, const Levels& on) {
  Setting s;
  s.ranks = ranks;
  s.accumulation = on[0] ? 3 : 1;
  s.precision = on[1] ? "amp_bf16" : "fp32";
  s.clipping = on[2] ? 0 : 0.5;
  s.reduce_every = on[3] ? "step" : "micro_batch";
  s.overlap = !on[4];
  s.checkpointing = on[5];
  return s;
}

void check_row(int ranks, const Levels& on) {
  Setting s = setting(ranks, on);
  const bool overlap = s.overlap, checkpointing = s.checkpointing;
  s.overlap = true;
  s.checkpointing = false;
  s.over_gloo = true;
  const Outcome reference = run(s);
  s.over_gloo = false;
  CHECK(reference.losses.front() != reference.losses.back());
  s.overlap = overlap;
  s.checkpointing = checkpointing;
  for (const std::string& strategy : host().names(Kind::kSharding)) {
    s.sharding = strategy;  // the reference itself, too: the device has to repeat itself
    INFO(title(s));
    const Outcome outcome = run(s);
    check_bit_identical(reference, outcome);
    check_prediction(outcome);
  }
}

}  // namespace

// Six rows in which each pair of factors takes all four pairs of levels: row 0 has all off; in the
// others a factor is on in three of five, and no two factors in the same three.
TEST_CASE("every strategy is bit-identical to every other, over pairs of all that can be set") {
  constexpr std::array<std::array<size_t, 3>, kNumFactors> kOn = {
      {{1, 2, 3}, {1, 2, 4}, {1, 2, 5}, {1, 3, 4}, {1, 3, 5}, {2, 3, 4}}};
  for (const int ranks : {1, 2, 3, 4}) {
    for (size_t row = 0; row < 6; ++row) {
      Levels on{};
      for (size_t f = 0; f < kNumFactors; ++f) {
        for (const size_t r : kOn[f]) on[f] = on[f] || r == row;
      }
      check_row(ranks, on);
    }
  }
}

// tools/check-matrix runs it; it counts the sections.
TEST_CASE("every strategy is bit-identical to every other, over all that can be set", "[.whole]") {
  for (const int ranks : {1, 2, 3, 4}) {
    for (size_t bits = 0; bits < size_t{1} << kNumFactors; ++bits) {
      Levels on{};
      for (size_t f = 0; f < kNumFactors; ++f) on[f] = ((bits >> f) & 1) != 0;
      DYNAMIC_SECTION(title(setting(ranks, on))) {
        check_row(ranks, on);
      }
    }
  }
}
