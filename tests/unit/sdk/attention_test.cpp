// Legend: B sequences, T tokens read now, S tokens in all, D width of a head.

#include "zerolab/attention.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include "zerolab/error.h"
#include "zerolab/random.h"

#include "catch.h"

using namespace zerolab;

namespace {

at::Tensor random(at::IntArrayRef shape, uint64_t key) {
  return at::empty(shape, at::kFloat).normal_(0, 1, make_generator(key));
}

double largest(const at::Tensor& x) {
  return x.abs().max().item<double>();
}

/// Query by query, from the definition.
at::Tensor one_by_one(const at::Tensor& q, const KeysAndValues& seen, bool causal) {
  const int64_t T = q.size(2), S = seen.keys.size(2), group = q.size(1) / seen.keys.size(1);
  at::Tensor out = at::empty_like(q);
  for (int64_t h = 0; h < q.size(1); ++h) {
    for (int64_t t = 0; t < T; ++t) {
      const int64_t visible = causal ? S - T + t + 1 : S;
      const at::Tensor keys = seen.keys.select(1, h / group).narrow(1, 0, visible);
      const at::Tensor values = seen.values.select(1, h / group).narrow(1, 0, visible);
      const at::Tensor scores = at::matmul(keys, q.select(1, h).select(1, t).unsqueeze(-1)) /
                                std::sqrt(static_cast<double>(q.size(3)));
      out.select(1, h).select(1, t).copy_((at::softmax(scores, 1) * values).sum(1));
    }
  }
  return out;
}

}  // namespace

TEST_CASE("attention: a query sees itself and what comes before it, also behind a filled cache") {
  for (const int64_t kv_heads : {4, 2, 1}) {
    for (const bool causal : {true, false}) {
      for (const int64_t T : {7, 3, 1}) {
        CAPTURE(kv_heads, causal, T);
        const at::Tensor q = random({2, 4, T, 8}, 1);
        const KeysAndValues seen{random({2, kv_heads, 7, 8}, 2), random({2, kv_heads, 7, 8}, 3)};
        const at::Tensor expected = one_by_one(q, seen, causal);
        UnitScope evaluation(false, 5), training(true, 5);
        CHECK(largest(attend(q, seen, causal, 0.5, evaluation) - expected) < 1e-5);
        CHECK(largest(attend(q, seen, causal, 0, training) - expected) < 1e-5);
        // Step by step, with a dropout that takes nothing.
        CHECK(largest(attend(q, seen, causal, 1e-12, training) - expected) < 1e-5);
      }
    }
  }
}

TEST_CASE("attention: dropout on the weights is drawn from the scope") {
  const at::Tensor q = random({1, 2, 5, 4}, 1);
  const KeysAndValues seen{random({1, 2, 5, 4}, 2), random({1, 2, 5, 4}, 3)};
  const auto run = [&](uint64_t key) {
    UnitScope scope(true, key);
    return attend(q, seen, true, 0.5, scope);
  };
  CHECK(at::equal(run(1), run(1)));
  CHECK_FALSE(at::equal(run(1), run(2)));
}

TEST_CASE("attention: a cache gives back all that it was given, by layer, and refuses more") {
  const at::Tensor keys = random({2, 3, 6, 4}, 1), values = random({2, 3, 6, 4}, 2);
  KeyValueCache cache;
  cache.capacity = 6;
  for (const int64_t tokens : {3, 1, 2}) {
    for (const size_t layer : {0, 1}) {
      // The second layer holds them the other way round.
      const at::Tensor k = (layer == 0 ? keys : values).narrow(2, cache.length, tokens);
      const at::Tensor v = (layer == 0 ? values : keys).narrow(2, cache.length, tokens);
      const KeysAndValues seen = remember(cache, layer, k, v);
      const int64_t there = cache.length + tokens;
      CHECK(at::equal(seen.keys, (layer == 0 ? keys : values).narrow(2, 0, there)));
      CHECK(at::equal(seen.values, (layer == 0 ? values : keys).narrow(2, 0, there)));
      CHECK(seen.keys.storage().is_alias_of(cache.keys[layer].storage()));
    }
    cache.length += tokens;
  }
  CHECK_THROWS_AS(remember(cache, 0, keys.narrow(2, 0, 1), values.narrow(2, 0, 1)), Error);
}
