// Each element of the state is written exactly once, whoever holds copies of it, and ranks write
// about the same.

#include "train/save_plan.h"

#include <algorithm>
#include <mutex>

#include <ATen/ops/zeros.h>

#include "catch.h"
#include "distributed/world.h"

namespace {

using zerolab::SavePart;
using zerolab::StatePiece;
using zerolab::WholeTensor;

constexpr int64_t kLong = int64_t{1} << 19;

StatePiece piece(const std::string& parameter, int64_t numel, int64_t offset, int64_t length) {
  return {parameter, "parameter", {numel}, offset, length, at::zeros({length})};
}

struct Plan {
  std::vector<WholeTensor> tensors;
  std::vector<std::vector<SavePart>> parts;  // by rank
  std::vector<std::vector<StatePiece>> held;
};

/// What every rank writes of what `held` says that it holds.
Plan plan(int ranks, const std::function<std::vector<StatePiece>(int rank)>& held) {
  Plan result;
  result.parts.resize(static_cast<size_t>(ranks));
  result.held.resize(static_cast<size_t>(ranks));
  std::mutex mutex;
  zerolab::run_on_threads(ranks, [&](zerolab::Communicator& world) {
    const auto mine = held(world.rank());
    const zerolab::WholeState state(mine, world);
    auto parts = zerolab::plan_save(state, world.rank(), ranks);
    const std::lock_guard lock(mutex);
    result.tensors = state.tensors();
    result.held[static_cast<size_t>(world.rank())] = mine;
    result.parts[static_cast<size_t>(world.rank())] = std::move(parts);
  });
  return result;
}

bool lies_in(const SavePart& part, const WholeTensor& tensor, const StatePiece& piece) {
  return piece.parameter == tensor.parameter && piece.offset <= part.offset &&
         part.offset + part.length <= piece.offset + piece.length;
}

/// Elements each once, each by a rank that holds them; returns what each rank writes.
std::vector<int64_t> check(const Plan& plan) {
  std::vector<int64_t> written(plan.parts.size());
  std::vector<std::vector<std::pair<int64_t, int64_t>>> ranges(plan.tensors.size());
  for (size_t rank = 0; rank < plan.parts.size(); ++rank) {
    for (const SavePart& part : plan.parts[rank]) {
      CHECK(part.length > 0);
      ranges[part.tensor].emplace_back(part.offset, part.length);
      written[rank] += part.length;
      const auto& held = plan.held[rank];
      CHECK(std::any_of(held.begin(), held.end(), [&](const StatePiece& p) {
        return lies_in(part, plan.tensors[part.tensor], p);
      }));
    }
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    std::sort(ranges[i].begin(), ranges[i].end());
    int64_t next = 0;
    for (const auto& [offset, length] : ranges[i]) {
      CHECK(offset == next);
      next = offset + length;
    }
    CHECK(next == plan.tensors[i].numel);
  }
  return written;
}

}  // namespace

TEST_CASE("a long tensor that every rank holds is written in even parts") {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto written =
        check(plan(ranks, [](int) { return std::vector{piece("w", kLong, 0, kLong)}; }));
    for (const int64_t elements : written) {
      CHECK(elements >= kLong / ranks);
      CHECK(elements <= kLong / ranks + 1);
    }
  }
}

TEST_CASE("short tensors that every rank holds are dealt out") {
  const auto written = check(plan(4, [](int) {
    std::vector<StatePiece> pieces;
    for (int i = 0; i < 40; ++i) pieces.push_back(piece("w" + std::to_string(i), 100, 0, 100));
    return pieces;
  }));
  CHECK(written == std::vector<int64_t>(4, 1000));
}

TEST_CASE("what one rank alone holds, it writes; copies go to the others then") {
  const auto written = check(plan(3, [](int rank) {
    std::vector<StatePiece> pieces;
    if (rank == 0) pieces.push_back(piece("mine", 2000, 0, 2000));
    for (int i = 0; i < 20; ++i) pieces.push_back(piece("w" + std::to_string(i), 100, 0, 100));
    return pieces;
  }));
  CHECK(written == std::vector<int64_t>{2000, 1000, 1000});
}

TEST_CASE("shards are written where they are") {
  const auto written =
      check(plan(4, [](int rank) { return std::vector{piece("w", 4000, rank * 1000, 1000)}; }));
  CHECK(written == std::vector<int64_t>(4, 1000));
}

TEST_CASE("shards that groups of ranks hold alike are written once, by both groups in turn") {
  for (const int64_t shard : {int64_t{700}, kLong}) {
    const auto written = check(plan(4, [&](int rank) {
      std::vector<StatePiece> pieces;
      for (const char* name : {"a", "b"}) {
        pieces.push_back(piece(name, 2 * shard, rank % 2 * shard, shard));
      }
      return pieces;
    }));
    CHECK(written == std::vector<int64_t>(4, shard));
  }
}

TEST_CASE("odd lengths, single elements and empty pieces leave nothing out") {
  for (const int ranks : {2, 3, 4}) {
    check(plan(ranks, [&](int rank) {
      std::vector<StatePiece> pieces = {piece("one", 1, 0, 1),
                                        piece("odd", kLong + 1, 0, kLong + 1)};
      const int64_t begin = 7 * rank / ranks, end = 7 * (rank + 1) / ranks;
      pieces.push_back(piece("seven", 7, begin, end - begin));
      pieces.push_back(piece("last", 3, rank == 0 ? 0 : 3, rank == 0 ? 3 : 0));
      return pieces;
    }));
  }
}

TEST_CASE("a tensor in several pieces of one rank is written whole") {
  check(plan(2, [](int rank) {
    if (rank == 1) return std::vector{piece("w", 90, 30, 30)};
    return std::vector{piece("w", 90, 0, 30), piece("w", 90, 60, 30)};
  }));
}
