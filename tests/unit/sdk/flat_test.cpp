#include "zerolab/flat.h"

#include <limits>
#include <map>
#include <set>

#include <ATen/ops/ones.h>

#include "catch.h"
#include "test_parameters.h"

using zerolab::FlatLayout;

TEST_CASE("slots do not overlap, start aligned, and hold every trainable parameter") {
  zerolab::Parameters p;
  declare_awkward(p);
  const FlatLayout layout(p, {.num_ranks = 3, .bucket_elements = 100});
  CHECK(layout.slots().size() == 7);
  int64_t end = 0;
  for (const auto& slot : layout.slots()) {
    CHECK(slot.offset % zerolab::kRangeAlignment == 0);
    CHECK(slot.offset >= end);
    end = slot.offset + slot.numel;
  }
  CHECK(end <= layout.length());
}

TEST_CASE("for any number of ranks, the ranks' ranges cover flat space once and are aligned") {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const int64_t bucket : {1, 100, 333, 100000}) {
      zerolab::Parameters p;
      declare_awkward(p);
      const FlatLayout layout(p, {.num_ranks = ranks, .bucket_elements = bucket});
      std::map<int64_t, int64_t> covered;
      for (int r = 0; r < ranks; ++r) {
        int64_t owned = 0;
        for (const auto& range : layout.ranges(r)) {
          CHECK(range.offset % zerolab::kRangeAlignment == 0);
          CHECK(range.length % zerolab::kRangeAlignment == 0);
          CHECK(range.owned_offset == owned);
          owned += range.length;
          covered[range.offset] = range.length;
        }
        CHECK(owned == layout.shard_length());
      }
      int64_t at = 0;
      for (const auto& [offset, length] : covered) {
        CHECK(offset == at);
        at += length;
      }
      CHECK(at == layout.length());
    }
  }
}

TEST_CASE("pieces of all ranks cover every element of every trainable parameter once") {
  for (const int ranks : {1, 2, 3, 4}) {
    zerolab::Parameters p;
    declare_awkward(p);
    const FlatLayout layout(p, {.num_ranks = ranks, .bucket_elements = 96});
    std::map<size_t, std::multiset<int64_t>> elements;
    for (int r = 0; r < ranks; ++r) {
      for (const auto& piece : layout.pieces(r)) {
        for (int64_t i = 0; i < piece.length; ++i)
          elements[piece.parameter].insert(piece.tensor_offset + i);
      }
    }
    for (size_t i = 0; i < p.size(); ++i) {
      const int64_t expected = p.info(i).requires_grad ? p.info(i).numel : 0;
      const auto& seen = elements[i];
      CHECK(static_cast<int64_t>(seen.size()) == expected);
      CHECK(std::set<int64_t>(seen.begin(), seen.end()).size() == seen.size());
    }
  }
}

TEST_CASE("ranges know which elements decay") {
  zerolab::Parameters p;
  declare_awkward(p);
  const FlatLayout layout(p, {.num_ranks = 2, .bucket_elements = 64});
  const auto decays = [&](int64_t element) {
    for (int r = 0; r < 2; ++r) {
      for (const auto& range : layout.ranges(r)) {
        if (element >= range.offset && element < range.offset + range.length) return range.decay;
      }
    }
    throw std::runtime_error("not covered");
  };
  for (const auto& slot : layout.slots()) {
    for (int64_t i = 0; i < slot.numel; ++i)
      CHECK(decays(slot.offset + i) == p.info(slot.parameter).decay);
  }
}

TEST_CASE("a model without trainable parameters has an empty layout") {
  zerolab::Parameters p;
  p.declare("frozen", {4}, zerolab::Init::ones(), {.requires_grad = false});
  const FlatLayout layout(p, {.num_ranks = 2, .bucket_elements = 64});
  CHECK(layout.length() == 0);
  CHECK(layout.buckets().empty());
  CHECK(layout.ranges(0).empty());
}

TEST_CASE("a bucket of any length is cut to its region") {
  zerolab::Parameters p;
  declare_awkward(p);
  constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
  for (const bool cut : {false, true}) {
    const FlatLayout layout(p, {.num_ranks = 2, .bucket_elements = kEndless, .cut_at_units = cut});
    size_t regions = 0;
    for (const auto& region : layout.regions()) regions += region.length > 0 ? 1 : 0;
    CHECK(layout.buckets().size() == regions);
  }
}

TEST_CASE("cut at units, a unit's parameters stand in its own region, small ones in the first") {
  zerolab::Parameters p;
  declare_awkward(p);
  const FlatLayout layout(
      p, {.num_ranks = 3, .bucket_elements = 64, .cut_at_units = true, .region_zero_below = 10});
  REQUIRE(layout.regions().size() == static_cast<size_t>(p.num_units()) + 1);
  for (const auto& slot : layout.slots()) {
    if (slot.numel == 0) continue;
    const auto& info = p.info(slot.parameter);
    const size_t expected = info.numel < 10 ? 0 : static_cast<size_t>(info.unit) + 1;
    const auto& region = layout.regions()[expected];
    CHECK(slot.offset >= region.offset);
    CHECK(slot.offset + slot.numel <= region.offset + region.length);
    CHECK(region.offset % (3 * zerolab::kRangeAlignment) == 0);
  }
}
