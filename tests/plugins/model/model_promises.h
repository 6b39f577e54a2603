#pragma once
// What every bundled model keeps, as checks that its test calls with its own options. Legend: B
// sequences, T tokens, V vocabulary.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/ops/equal.h>

#include "zerolab/error.h"

#include "catch.h"
#include "model/bound_model.h"

namespace model_test {

/// Bit-identical logits before a token that changes, and others from it on.
inline void check_causal(BoundModel& b, bool training = false) {
  const int64_t T = b.sequence_length;
  const auto logits = [&](const at::Tensor& tokens) {
    b.units.begin(training, 9);
    return b.model->logits(tokens, b.units).detach();
  };
  const at::Tensor before = logits(b.batch.tokens);
  for (int64_t t = 0; t < T; ++t) {
    CAPTURE(t);
    at::Tensor changed = b.batch.tokens.clone();
    changed.select(1, t).add_(1).remainder_(b.vocab_size);
    const at::Tensor after = logits(changed);
    CHECK(at::equal(after.slice(1, 0, t), before.slice(1, 0, t)));
    CHECK_FALSE(at::equal(after.select(1, t), before.select(1, t)));
    if (t + 1 < T) CHECK_FALSE(at::equal(after.select(1, T - 1), before.select(1, T - 1)));
  }
}

/// Tokens in one piece or in several, with a cache that has room to spare: the logits of the whole
/// text within `tolerance` of the largest.
inline void check_cache(BoundModel& b, double tolerance = 1e-5) {
  REQUIRE(b.model->has_cache());
  const int64_t T = b.sequence_length;
  const at::Tensor whole = b.logits().detach().to(at::kFloat);
  const double allowed = tolerance * largest(whole);
  const std::vector<std::vector<int64_t>> ways = {
      {T}, std::vector<int64_t>(static_cast<size_t>(T), 1), {T - 1, 1}, {1, T - 1}, {2, 1, T - 3}};
  for (const std::vector<int64_t>& chunks : ways) {
    zerolab::KeyValueCache cache;
    cache.capacity = T + 2;
    for (int64_t tokens : chunks) {
      CAPTURE(chunks.size(), cache.length, tokens);
      b.units.begin(/*training=*/false, 0);
      const int64_t first = cache.length;
      const at::Tensor next =
          b.model->next_logits(b.batch.tokens.narrow(1, first, tokens), b.units, cache);
      b.units.end();
      REQUIRE(cache.length == first + tokens);
      CHECK_FALSE(next.requires_grad());
      REQUIRE(next.sizes() == at::IntArrayRef({3, b.vocab_size}));
      CHECK(largest(next.to(at::kFloat) - whole.select(1, cache.length - 1)) <= allowed);
    }
  }
}

/// More tokens than the cache was made for are an error, not a write beyond it.
inline void check_full_cache(BoundModel& b) {
  zerolab::KeyValueCache cache;
  cache.capacity = 2;
  b.model->next_logits(b.batch.tokens.narrow(1, 0, 2), b.units, cache);
  CHECK_THROWS_AS(b.model->next_logits(b.batch.tokens.narrow(1, 2, 1), b.units, cache),
                  zerolab::Error);
  CHECK(cache.length == 2);
}

/// A float32 sum over counted targets of the cross entropy of logits.
inline void check_loss_is_sum(BoundModel& b) {
  b.batch.targets.select(1, 2).fill_(zerolab::kIgnoredTarget);
  b.batch.targets.select(0, 1).fill_(zerolab::kIgnoredTarget);
  const at::Tensor loss = b.loss();
  CHECK(loss.dim() == 0);
  CHECK(loss.scalar_type() == at::kFloat);
  CHECK(loss.requires_grad());
  const at::Tensor logits = b.logits().to(at::kDouble);
  const double expected = cross_entropy_sum(logits, b.batch.targets).item<double>();
  CHECK(loss.item<double>() == Approx(expected).epsilon(1e-6));
  b.batch.targets.fill_(zerolab::kIgnoredTarget);
  CHECK(b.loss().item<double>() == 0);
}

/// Gradients of a low-precision forward against those in float32, as parts of each one's norm.
/// `floor` is the norm below which a gradient is rounding alone.
inline void check_close(const BoundModel& b, const std::vector<at::Tensor>& gradients,
                        const std::vector<at::Tensor>& expected, double part, double floor = 0) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    CAPTURE(b.parameters.info(i).name);
    REQUIRE(gradients[i].defined());
    CHECK((gradients[i].to(at::kFloat) - expected[i]).norm().item<double>() <=
          part * expected[i].norm().item<double>() + floor);
  }
}

/// Runs f under autocast as the trainer does.
template <class F>
auto under_autocast(at::ScalarType dtype, const F& f) {
  const bool cache = at::autocast::is_autocast_cache_enabled();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, dtype);
  at::autocast::set_autocast_cache_enabled(false);
  auto result = f();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::set_autocast_cache_enabled(cache);
  return result;
}

/// Autocast: a float32 loss near the exact one, float32 gradients, a cache that agrees.
inline void check_autocast(BoundModel& b, at::ScalarType dtype, double part = 0.05,
                           double floor = 0) {
  const double exact = b.loss().item<double>();
  const std::vector<at::Tensor> expected = b.gradients();
  b.forget_gradients();
  const at::Tensor loss = under_autocast(dtype, [&] { return b.loss(); });
  loss.backward();
  CHECK(loss.scalar_type() == at::kFloat);
  CHECK(loss.item<double>() != exact);
  CHECK(loss.item<double>() == Approx(exact).epsilon(1e-2));
  const std::vector<at::Tensor> gradients = b.current_gradients();
  for (const at::Tensor& g : gradients) CHECK(g.scalar_type() == at::kFloat);
  check_close(b, gradients, expected, part, floor);
  if (!b.model->has_cache()) return;
  under_autocast(dtype, [&] {
    check_cache(b, 0.03);
    return true;
  });
}

/// Parameters in 16 bits: a float32 loss near the exact one, gradients in the parameters' dtype, a
/// cache that agrees. `exact` is the same model in float32.
inline void check_sixteen_bits(BoundModel& b, BoundModel& exact, double part = 0.05,
                               double floor = 0) {
  const at::ScalarType dtype = b.flat.scalar_type();
  {
    const at::NoGradGuard no_grad;
    b.flat.copy_(exact.flat);
    exact.flat.copy_(b.flat);  // rounded, so that what differs is the computation
  }
  const at::Tensor loss = b.loss();
  CHECK(loss.scalar_type() == at::kFloat);
  CHECK(loss.item<double>() == Approx(exact.loss().item<double>()).epsilon(1e-2));
  const std::vector<at::Tensor> gradients = b.gradients();
  for (const at::Tensor& g : gradients) CHECK(g.scalar_type() == dtype);
  check_close(b, gradients, exact.gradients(), part, floor);
  if (b.model->has_cache()) check_cache(b, 0.03);
}

/// Recomputing blocks gives the same gradients, bit by bit, dropout included.
inline void check_recomputation(BoundModel& b) {
  const auto gradients = [&](bool checkpointing) {
    b.forget_gradients();
    b.units.set_activation_checkpointing(checkpointing);
    b.loss(/*key=*/4).backward();
    b.units.end();
    b.units.set_activation_checkpointing(false);
    return b.current_gradients();
  };
  const std::vector<at::Tensor> kept = gradients(false), again = gradients(true);
  for (size_t i = 0; i < kept.size(); ++i) {
    CAPTURE(b.parameters.info(i).name);
    CHECK(at::equal(kept[i], again[i]));
  }
}

/// Each layout names every parameter once (or a name of it), and an alias only beside it.
inline void check_layouts(const BoundModel& b, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const zerolab::WeightLayout& layout : b.model->weight_layouts()) {
    found.push_back(layout.name);
    CAPTURE(layout.name);
    std::vector<bool> seen(b.parameters.size());
    for (const zerolab::ForeignWeight& weight : layout.weights) {
      CAPTURE(weight.name, weight.parameter);
      const int64_t index = b.parameters.find(weight.parameter);
      REQUIRE(index >= 0);
      seen[static_cast<size_t>(index)] = true;
    }
    CHECK(std::all_of(seen.begin(), seen.end(), [](bool named) { return named; }));
  }
  CHECK(found == names);
}

}  // namespace model_test
