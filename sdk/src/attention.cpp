#include "zerolab/attention.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include "zerolab/error.h"

namespace zerolab {
namespace {

/// As the fused kernel has it, with weights that dropout can reach.
at::Tensor attend_step_by_step(const at::Tensor& queries_BHTD, const KeysAndValues& tokens,
                               bool causal, double dropout, UnitScope& scope) {
  const int64_t T = queries_BHTD.size(2), S = tokens.keys.size(2);
  const int64_t group = queries_BHTD.size(1) / tokens.keys.size(1);
  const auto for_each_query = [group](const at::Tensor& x) {
    return group == 1 ? x : x.repeat_interleave(group, 1);
  };
  const double scale = 1 / std::sqrt(static_cast<double>(queries_BHTD.size(3)));
  at::Tensor scores = at::matmul(queries_BHTD * scale, for_each_query(tokens.keys).transpose(2, 3));
  if (causal) {
    const double masked = -std::numeric_limits<double>::infinity();
    scores = scores + at::full({T, S}, masked, scores.options()).triu(S - T + 1);
  }
  const at::Tensor weights = scope.dropout(at::softmax(scores, -1), dropout);
  return at::matmul(weights, for_each_query(tokens.values));
}

}  // namespace

KeysAndValues remember(KeyValueCache& cache, size_t layer, const at::Tensor& keys_BHTD,
                       const at::Tensor& values_BHTD) {
  const int64_t T = keys_BHTD.size(2);
  if (cache.length + T > cache.capacity) {
    throw Error("a cache with room for " + std::to_string(cache.capacity) + " tokens holds " +
                std::to_string(cache.length) + " and was given " + std::to_string(T) +
                " more; make it larger.");
  }
  if (cache.keys.size() <= layer) cache.keys.resize(layer + 1);
  if (cache.values.size() <= layer) cache.values.resize(layer + 1);
  const auto add = [&](at::Tensor& kept, const at::Tensor& next) {
    if (!kept.defined()) {
      kept = at::empty({next.size(0), next.size(1), cache.capacity, next.size(3)}, next.options());
    }
    kept.narrow(2, cache.length, T).copy_(next);
    return kept.narrow(2, 0, cache.length + T);
  };
  return {add(cache.keys[layer], keys_BHTD), add(cache.values[layer], values_BHTD)};
}

at::Tensor attend(const at::Tensor& queries_BHTD, const KeysAndValues& tokens, bool causal,
                  double dropout, UnitScope& scope) {
  if (scope.training() && dropout > 0) {
    return attend_step_by_step(queries_BHTD, tokens, causal, dropout, scope);
  }
  const int64_t T = queries_BHTD.size(2), S = tokens.keys.size(2);
  const bool grouped = queries_BHTD.size(1) != tokens.keys.size(1);
  // The kernel's own causal mask begins at the first key: right where the queries do, too. One
  // query that is the last token sees all.
  const bool whole = T == S;
  std::optional<at::Tensor> mask_TS;
  if (causal && !whole && T > 1) {
    mask_TS = at::ones({T, S}, queries_BHTD.options().dtype(at::kBool)).tril(S - T);
  }
  return at::scaled_dot_product_attention(queries_BHTD, tokens.keys, tokens.values, mask_TS,
                                          /*dropout_p=*/0, /*is_causal=*/causal && whole,
                                          /*scale=*/std::nullopt, /*enable_gqa=*/grouped);
}

}  // namespace zerolab
