#pragma once
// What the tests of model/gpt share: small models, and the same network from its definition.
// Legend: B sequences, T tokens, C channels, H heads, D = C / H, V vocabulary, L layers.

#include <cmath>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>

#include "model/bound_model.h"

namespace gpt_test {

using namespace model_test;

inline OptionValues tiny(const OptionValues& more = {}) {
  return with(
      {{"num_layers", int64_t{2}}, {"num_heads", int64_t{2}}, {"embedding_dim", int64_t{8}}}, more);
}

struct Bound : BoundModel {
  explicit Bound(const OptionValues& options, int64_t V = 11, int64_t T = 6, uint64_t seed = 1,
                 at::ScalarType dtype = at::kFloat)
      : BoundModel("model/gpt", options, V, T, seed, dtype) {}
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

}  // namespace gpt_test
