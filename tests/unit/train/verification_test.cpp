#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "zerolab/error.h"

#include "catch.h"
#include "distributed/world.h"
#include "train/verdict.h"
#include "train/whole_state.h"

namespace {

using zerolab::Communicator;
using zerolab::StatePiece;
using zerolab::WholeState;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Elements [begin, end) of 0, 1, 2 ... [numel].
StatePiece counting(const std::string& parameter, const std::string& state, int64_t numel,
                    int64_t begin, int64_t end) {
  const at::Tensor data = at::arange(begin, end, at::TensorOptions().dtype(at::kFloat));
  return {parameter, state, {numel}, begin, end - begin, data};
}

/// What three ranks with these pieces find out, as rank `asked` sees it.
template <class Body>
void on_three_ranks(const std::vector<std::vector<StatePiece>>& pieces, const Body& body) {
  std::mutex mutex;  // Catch's assertions are not for several threads
  zerolab::run_on_threads(3, [&](Communicator& ranks) {
    WholeState state(pieces[static_cast<size_t>(ranks.rank())], ranks);
    body(state, ranks, mutex);
  });
}

zerolab::Verification two_equal_runs() {
  zerolab::Verification v;
  v.sharding = "mine";
  v.against = "theirs";
  v.reference.steps = {{2.5, 1.5, false}, {2.25, 1.25, false}};
  v.reference.val_loss = 2;
  v.own = v.reference;
  v.tensors = {{"w", "parameter", 8, 0, 0, ""}, {"w", "exp_avg", 8, 0, 0, ""}};
  return v;
}

}  // namespace

TEST_CASE("elements differ if a bit of them does") {
  const at::Tensor a = at::full({5}, 1.0F);
  at::Tensor b = a.clone();
  CHECK(zerolab::deviation(a, b).num_differing == 0);
  b.view(at::kInt)[3].add_(1);
  CHECK(zerolab::deviation(a, b).num_differing == 1);
  CHECK(zerolab::deviation(a, b).largest == std::ldexp(1.0, -23));
  CHECK(zerolab::deviation(at::zeros({2}), at::zeros({2}).neg()).num_differing == 2);
  CHECK(zerolab::deviation(at::zeros({2}), at::zeros({2}).neg()).largest == 0);
  const at::Tensor bf16 = a.to(at::kBFloat16);
  CHECK(zerolab::deviation(bf16, bf16.add(0.5)).num_differing == 5);
  CHECK(zerolab::deviation(a.narrow(0, 0, 0), b.narrow(0, 0, 0)).num_differing == 0);
}

TEST_CASE("a NaN equals the same NaN, and its distance from a number is not a number") {
  const at::Tensor nan = at::full({3}, kNan);
  CHECK(zerolab::deviation(nan, nan.clone()).num_differing == 0);
  at::Tensor some = at::zeros({3});
  some[0] = 7;
  at::Tensor other = at::zeros({3});
  other[1] = kNan;
  CHECK(zerolab::deviation(some, other).num_differing == 2);
  CHECK(std::isnan(zerolab::deviation(some, other).largest));
}

TEST_CASE("differences are found beyond the first million elements") {
  const at::Tensor a = at::zeros({(1 << 20) + 9});
  at::Tensor b = a.clone();
  b[1 << 20] = 2;
  b[5] = -3;
  CHECK(zerolab::deviation(a, b).num_differing == 2);
  CHECK(zerolab::deviation(a, b).largest == 3);
}

TEST_CASE("whole tensors are put together from the pieces of three ranks, in any order") {
  const std::vector<std::vector<StatePiece>> pieces = {
      {counting("w", "parameter", 10, 7, 10), counting("b", "parameter", 3, 0, 3)},
      {counting("w", "parameter", 10, 0, 2), counting("w", "parameter", 10, 4, 7)},
      {counting("only here", "exp_avg", 1, 0, 1), counting("w", "parameter", 10, 2, 4),
       counting("b", "parameter", 3, 0, 3), counting("nothing", "parameter", 0, 0, 0)}};
  on_three_ranks(pieces, [](WholeState& state, Communicator&, std::mutex& mutex) {
    std::vector<at::Tensor> whole;
    for (size_t i = 0; i < state.tensors().size(); ++i) whole.push_back(state.assemble(i));
    const std::string disagreement = state.disagreement();
    const std::lock_guard lock(mutex);
    REQUIRE(whole.size() == 3);
    CHECK(disagreement.empty());
    CHECK(state.tensors()[0].parameter == "w");
    CHECK(state.find("only here", "exp_avg") == 2);
    CHECK(state.find("only here", "parameter") == -1);
    for (const at::Tensor& tensor : whole) {
      CHECK(at::equal(tensor, at::arange(tensor.numel(), tensor.options())));
    }
  });
}

TEST_CASE("a rank whose copy differs is named, on every rank") {
  std::vector<std::vector<StatePiece>> pieces;
  for (int rank = 0; rank < 3; ++rank) pieces.push_back({counting("w", "exp_avg", 6, 0, 6)});
  pieces[2][0].data[1] = 9;
  pieces[2][0].data[4] = -1;
  on_three_ranks(pieces, [](WholeState& state, Communicator&, std::mutex& mutex) {
    const at::Tensor whole = state.assemble(0);
    const std::string disagreement = state.disagreement();
    const std::lock_guard lock(mutex);
    CHECK(at::equal(whole, at::arange(6, whole.options())));
    CHECK(disagreement.find("rank 2 holds 2 of 6 elements of state 'exp_avg' of parameter 'w'") ==
          0);
  });
}

TEST_CASE("elements that no rank holds are an error that names them") {
  const std::vector<std::vector<StatePiece>> pieces = {
      {counting("w", "parameter", 10, 0, 4)}, {}, {counting("w", "parameter", 10, 6, 10)}};
  const auto nothing = [](WholeState&, Communicator&, std::mutex&) {};
  CHECK_THROWS_WITH(on_three_ranks(pieces, nothing),
                    "no rank holds elements 4 to 5 of parameter 'w'");
  CHECK_THROWS_WITH(on_three_ranks({pieces[0], {}, {}}, nothing),
                    "no rank holds elements 4 to 9 of parameter 'w'");
}

TEST_CASE("pieces that contradict each other or themselves are an error") {
  const auto nothing = [](WholeState&, Communicator&, std::mutex&) {};
  CHECK_THROWS_AS(
      on_three_ranks(
          {{counting("w", "parameter", 4, 0, 4)}, {counting("w", "parameter", 5, 0, 5)}, {}},
          nothing),
      zerolab::PluginError);
  StatePiece beyond = counting("w", "parameter", 4, 0, 4);
  beyond.offset = 1;
  CHECK_THROWS_AS(on_three_ranks({{beyond}, {beyond}, {beyond}}, nothing), zerolab::PluginError);
}

TEST_CASE("a kept state is compared with one that is cut otherwise") {
  const std::vector<std::vector<StatePiece>> replicated(
      3, {counting("w", "parameter", 7, 0, 7), counting("w", "exp_avg", 2, 0, 2),
          counting("w", "gone", 2, 0, 2)});
  std::vector<std::vector<StatePiece>> sharded = {
      {counting("w", "exp_avg", 2, 0, 2), counting("w", "parameter", 7, 0, 3)},
      {counting("w", "parameter", 7, 3, 7)},
      {counting("w", "new", 3, 0, 3)}};
  sharded[0][1].data[2].add_(0.5);
  sharded[1][0].data[3].add_(-2);
  std::mutex mutex;
  zerolab::run_on_threads(3, [&](Communicator& ranks) {
    const auto rank = static_cast<size_t>(ranks.rank());
    WholeState first(replicated[rank], ranks);
    const zerolab::KeptState kept(first, ranks);
    WholeState second(sharded[rank], ranks);
    const auto same = kept.compare(first);
    const auto found = kept.compare(second);
    const std::lock_guard lock(mutex);
    REQUIRE(same.size() == 3);
    for (const auto& tensor : same) CHECK_FALSE(tensor.differs());
    REQUIRE(found.size() == 3);
    CHECK(found[0].num_differing == 2);
    CHECK(found[0].largest == 2);
    CHECK_FALSE(found[1].differs());
    CHECK(found[2].unlike == "is missing");
    CHECK(found[2].differs());
  });
}

TEST_CASE("equal runs have no difference and no problem") {
  zerolab::Verification v = two_equal_runs();
  CHECK(v.first_difference().empty());
  CHECK(v.problem().empty());
  v.own.val_loss = v.reference.val_loss = kNan;
  CHECK(v.problem().empty());
}

TEST_CASE("the first step that differs in a bit is named with both numbers") {
  zerolab::Verification v = two_equal_runs();
  v.own.steps[1].grad_norm = std::nextafter(1.25, 2);
  v.tensors[0].num_differing = 1;
  CHECK(v.problem() ==
        "sharding 'mine' does not give what 'theirs' gives: in step 2 the gradient norm is "
        "1.2500000000000002 instead of 1.25.");
  v.own.steps[0].skipped = true;
  CHECK(v.first_difference() == "in step 1 the update is skipped");
}

TEST_CASE("after equal steps, a rank, a tensor or the validation is named") {
  zerolab::Verification v = two_equal_runs();
  v.own.val_loss = 3;
  CHECK(v.first_difference() == "after 2 steps the validation loss is 3 instead of 2");
  v.tensors[1].num_differing = 3;
  v.tensors[1].largest = 0.5;
  CHECK(
      v.first_difference() ==
      "after 2 steps state 'exp_avg' of parameter 'w' differs in 3 of 8 elements, by at most 0.5");
  v.tensors[0].unlike = "is missing";
  CHECK(v.first_difference() == "after 2 steps parameter 'w' is missing");
  v.own.disagreement = "rank 1 says otherwise";
  CHECK(v.first_difference() == "rank 1 says otherwise");
}

TEST_CASE("nothing is proven by a reference that does not repeat itself or whose ranks differ") {
  zerolab::Verification v = two_equal_runs();
  v.repeats = false;
  v.own.steps[0].loss = 3;
  CHECK(v.problem().find("nothing can be proven: the reference 'theirs' does not repeat itself") ==
        0);
  v = two_equal_runs();
  v.reference.disagreement = "rank 1 says otherwise";
  CHECK(v.problem().find("nothing can be proven: the ranks do not agree") == 0);
}

TEST_CASE("a tolerance is for losses: relative, and not for ranks that disagree") {
  zerolab::Verification v = two_equal_runs();
  v.own.steps[1].loss = 2.25 * 1.01;
  v.tensors[0].num_differing = 8;
  v.tolerance = 0.02;
  CHECK(v.problem().empty());
  CHECK(v.largest_loss_difference() == Approx(0.01));
  v.tolerance = 0.005;
  CHECK(v.problem().find("in step 2 the loss is 2.27") != std::string::npos);
  CHECK(v.problem().find("allows a relative difference of 0.005.") != std::string::npos);
  v.tolerance = 0.02;
  v.own.val_loss = kNan;
  CHECK(v.problem().find("after 2 steps the validation loss is nan instead of 2") !=
        std::string::npos);
  v.own.val_loss = 2;
  v.own.disagreement = "rank 1 says otherwise";
  CHECK_FALSE(v.problem().empty());
}
