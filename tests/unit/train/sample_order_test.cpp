#include "train/sample_order.h"

#include <set>
#include <vector>

#include "catch.h"

TEST_CASE("permute is a bijection of any domain") {
  for (const int64_t size : {1, 2, 3, 7, 64, 65, 1000, 4097}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t p = zerolab::permute(i, size, 42);
      REQUIRE(p >= 0);
      REQUIRE(p < size);
      seen.insert(p);
    }
    CHECK(static_cast<int64_t>(seen.size()) == size);
  }
}

TEST_CASE("permute depends on its key and does not keep neighbours together") {
  int same = 0, neighbours = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    same += zerolab::permute(i, 1000, 1) == zerolab::permute(i, 1000, 2) ? 1 : 0;
    neighbours += zerolab::permute(i, 1000, 1) + 1 == zerolab::permute(i + 1, 1000, 1) ? 1 : 0;
  }
  // Statistical: about one of each is expected of a random permutation.
  CHECK(same < 10);
  CHECK(neighbours < 10);
}

TEST_CASE("each epoch visits every sample once, in another order") {
  const zerolab::SampleOrder order(100, 7, 100);
  std::vector<int64_t> first, second;
  for (int64_t i = 0; i < 100; ++i) first.push_back(order.index(i));
  for (int64_t i = 100; i < 200; ++i) second.push_back(order.index(i));
  CHECK(first != second);
  CHECK(std::set<int64_t>(first.begin(), first.end()).size() == 100);
  CHECK(std::set<int64_t>(second.begin(), second.end()).size() == 100);
}

TEST_CASE("an epoch that drops its last samples drops others each time, and repeats none") {
  const zerolab::SampleOrder order(100, 7, 96);
  std::set<int64_t> left_out;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 96; ++i) seen.insert(order.index(epoch * 96 + i));
    CHECK(seen.size() == 96);
    for (int64_t i = 0; i < 100; ++i) {
      if (seen.count(i) == 0) left_out.insert(i);
    }
  }
  CHECK(left_out.size() > 4);
}
