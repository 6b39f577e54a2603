#pragma once
// What the tests of model/gpt share: a model with memory of its own, and the same network from its
// definition. Legend: B sequences, T tokens, C channels, H heads, D = C / H, V vocabulary, L
// layers.

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include "zerolab/model.h"
#include "zerolab/random.h"

#include "load_plugin.h"

namespace gpt_test {

using zerolab::OptionValues;

inline OptionValues tiny(OptionValues more = {}) {
  OptionValues options = {
      {"num_layers", int64_t{2}}, {"num_heads", int64_t{2}}, {"embedding_dim", int64_t{8}}};
  for (auto& [name, value] : more) options.insert_or_assign(name, value);
  return options;
}

/// A model with memory of its own, as a strategy would give it.
struct Bound {
  explicit Bound(const OptionValues& options, int64_t V = 11, int64_t T = 6, uint64_t seed = 1)
      : model(load_plugin<zerolab::Model>("model/gpt", options)) {
    model->declare(parameters, {.vocab_size = V, .sequence_length = T});
    flat = at::zeros({parameters.total_numel()});
    int64_t offset = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters.bind(i, flat, offset);
      parameters.initialize(i, seed);
      offset += parameters.info(i).numel;
    }
    batch.tokens = at::randint(V, {3, T}, zerolab::make_generator(5), at::kLong);
    batch.targets = at::randint(V, {3, T}, zerolab::make_generator(6), at::kLong);
    batch.num_targets = 3 * T;
    units.begin(/*training=*/false, 0);
  }
  const at::Tensor& tensor(const std::string& name) const {
    const int64_t index = parameters.find(name);
    if (index < 0) throw std::runtime_error("no parameter " + name);
    return parameters.tensor(static_cast<size_t>(index));
  }
  at::Tensor loss() { return model->loss(batch, units); }
  at::Tensor loss(uint64_t key) {
    units.begin(/*training=*/true, key);
    return model->loss(batch, units);
  }
  /// All gradients after a backward of the loss, in order of declaration.
  std::vector<at::Tensor> gradients() {
    for (size_t i = 0; i < parameters.size(); ++i) parameters.tensor(i).mutable_grad().reset();
    loss().backward();
    std::vector<at::Tensor> all;
    for (size_t i = 0; i < parameters.size(); ++i) all.push_back(parameters.tensor(i).grad());
    return all;
  }

  std::unique_ptr<zerolab::Model> model;
  zerolab::Parameters parameters;
  zerolab::Units units;
  zerolab::Batch batch;
  at::Tensor flat;
};

/// The same network from its definition, in double precision and without any of the operators that
/// the plugin uses.
class Reference {
 public:
  Reference(const Bound& bound, int64_t L, int64_t H, bool bias, bool tanh)
      : bound_(bound), layers_(L), heads_(H), bias_(bias), tanh_(tanh) {}

  at::Tensor logits(const at::Tensor& tokens_BT) const {
    const int64_t B = tokens_BT.size(0), T = tokens_BT.size(1);
    at::Tensor x = w("wte.weight").index_select(0, tokens_BT.reshape({-1})).view({B, T, -1});
    x = x + w("wpe.weight").slice(0, 0, T);
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const std::string name = "blocks." + std::to_string(layer);
      x = x + attention(norm(x, name + ".attention_norm"), name + ".attention");
      const at::Tensor hidden = gelu(linear(norm(x, name + ".mlp_norm"), name + ".mlp.fc"));
      x = x + linear(hidden, name + ".mlp.proj");
    }
    return at::matmul(norm(x, "final_norm"), w("lm_head.weight").t());
  }

 private:
  at::Tensor w(const std::string& name) const { return bound_.tensor(name).to(at::kDouble); }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    const at::Tensor y = at::matmul(x, w(name + ".weight").t());
    return bias_ ? y + w(name + ".bias") : y;
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    const at::Tensor centered = x - x.mean(-1, true);
    const at::Tensor variance = (centered * centered).mean(-1, true);
    const at::Tensor y = centered / (variance + 1e-5).sqrt() * w(name + ".weight");
    return bias_ ? y + w(name + ".bias") : y;
  }
  at::Tensor gelu(const at::Tensor& x) const {
    if (!tanh_) return x * 0.5 * (at::erf(x / std::sqrt(2.0)) + 1);
    const double c = std::sqrt(2 / std::acos(-1.0));
    return x * 0.5 * (at::tanh((x + x * x * x * 0.044715) * c) + 1);
  }
  at::Tensor attention(const at::Tensor& x_BTC, const std::string& name) const {
    const int64_t T = x_BTC.size(1), C = x_BTC.size(2), D = C / heads_;
    const at::Tensor qkv = linear(x_BTC, name + ".qkv");
    const at::Tensor allowed = at::ones({T, T}, at::kBool).tril();
    std::vector<at::Tensor> mixed;
    for (int64_t h = 0; h < heads_; ++h) {
      const at::Tensor q = qkv.slice(2, h * D, (h + 1) * D);
      const at::Tensor k = qkv.slice(2, C + h * D, C + (h + 1) * D);
      const at::Tensor v = qkv.slice(2, 2 * C + h * D, 2 * C + (h + 1) * D);
      const at::Tensor scores =
          at::matmul(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(D));
      mixed.push_back(at::matmul(at::softmax(scores.masked_fill(~allowed, -INFINITY), -1), v));
    }
    return linear(at::cat(mixed, -1), name + ".proj");
  }

  const Bound& bound_;
  int64_t layers_, heads_;
  bool bias_, tanh_;
};

/// Sum over counted targets of -log softmax, from logits.
inline at::Tensor cross_entropy_sum(const at::Tensor& logits_BTV, const at::Tensor& targets_BT) {
  const at::Tensor counted = targets_BT.ne(zerolab::kIgnoredTarget);
  const at::Tensor safe = targets_BT.clamp_min(0).unsqueeze(-1);
  const at::Tensor log_p = at::log_softmax(logits_BTV, -1).gather(-1, safe).squeeze(-1);
  return -(log_p * counted).sum();
}

inline double largest(const at::Tensor& x) {
  return x.abs().max().item<double>();
}

/// Moves norms and biases away from one and zero, so that a test sees them.
inline void disturb(Bound& bound) {
  const at::NoGradGuard no_grad;
  bound.flat.add_(at::randint(-100, 100, bound.flat.sizes(), zerolab::make_generator(3), at::kLong)
                      .to(at::kFloat) *
                  2e-3);
}

}  // namespace gpt_test
