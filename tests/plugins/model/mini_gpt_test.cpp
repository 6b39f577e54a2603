// Legend: B sequences, T tokens, C channels, H heads, D = C / H, F feed-forward, V vocabulary, L
// layers.

#include <algorithm>
#include <cmath>

#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include "zerolab/error.h"

#include "catch.h"
#include "model/bound_model.h"
#include "model/model_promises.h"

using namespace model_test;

namespace {

OptionValues tiny(const OptionValues& more = {}) {
  return with({{"num_layers", int64_t{2}},
               {"num_heads", int64_t{2}},
               {"embedding_dim", int64_t{8}},
               {"dim_feedforward", int64_t{12}}},
              more);
}

struct Bound : BoundModel {
  explicit Bound(const OptionValues& options, int64_t V = 11, int64_t T = 6, uint64_t seed = 1,
                 at::ScalarType dtype = at::kFloat)
      : BoundModel("model/mini_gpt", options, V, T, seed, dtype) {}
};

/// The same network from its definition, in double precision and without any of the operators that
/// the plugin uses.
class Reference {
 public:
  Reference(const Bound& bound, int64_t L, int64_t H, bool causal)
      : bound_(bound), layers_(L), heads_(H), causal_(causal) {}

  at::Tensor logits(const at::Tensor& tokens_BT) const {
    const int64_t B = tokens_BT.size(0), T = tokens_BT.size(1);
    at::Tensor x = w("embedding.weight").index_select(0, tokens_BT.reshape({-1})).view({B, T, -1});
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const std::string name = "blocks." + std::to_string(layer);
      x = norm(x + attention(x, name + ".attention"), name + ".attention_norm");
      const at::Tensor hidden = linear(x, name + ".mlp.fc").clamp_min(0);
      x = norm(x + linear(hidden, name + ".mlp.proj"), name + ".mlp_norm");
    }
    return linear(x, "head");
  }

 private:
  at::Tensor w(const std::string& name) const { return bound_.tensor(name).to(at::kDouble); }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, w(name + ".weight").t()) + w(name + ".bias");
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    const at::Tensor centered = x - x.mean(-1, true);
    const at::Tensor variance = (centered * centered).mean(-1, true);
    return centered / (variance + 1e-5).sqrt() * w(name + ".weight") + w(name + ".bias");
  }
  at::Tensor attention(const at::Tensor& x_BTC, const std::string& name) const {
    const int64_t T = x_BTC.size(1), C = x_BTC.size(2), D = C / heads_;
    const at::Tensor qkv = linear(x_BTC, name + ".qkv");
    at::Tensor allowed = at::ones({T, T}, at::kBool);
    if (causal_) allowed = allowed.tril();
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
  bool causal_;
};

}  // namespace

TEST_CASE("model/mini_gpt computes what a definition in double precision computes, and gradients") {
  for (bool causal : {true, false}) {
    CAPTURE(causal);
    Bound b(tiny({{"causal", causal}}));
    disturb(b);
    const at::Tensor expected = Reference(b, 2, 2, causal).logits(b.batch.tokens);
    CHECK(largest(b.logits() - expected) < 1e-5 * largest(expected));
    const std::vector<at::Tensor> gradients = b.gradients();
    b.forget_gradients();
    cross_entropy_sum(expected, b.batch.targets).backward();
    for (size_t i = 0; i < b.parameters.size(); ++i) {
      CAPTURE(b.parameters.info(i).name);
      const at::Tensor exact = b.parameters.tensor(i).grad();
      REQUIRE(gradients[i].defined());
      CHECK(largest(gradients[i] - exact) < 2e-5 * std::max(1.0, largest(exact)));
    }
  }
}

TEST_CASE("model/mini_gpt has as many parameters as the closed form says") {
  const int64_t V = 1000, C = 128, F = 2048, L = 2;
  Bound b({}, V, 32);
  const int64_t block = 4 * C * C + 4 * C + 2 * C * F + F + C + 4 * C;
  CHECK(b.parameters.total_numel() == V * C + L * block + V * C + V);
  CHECK(b.parameters.num_units() == L + 1);
  for (size_t i = 0; i < b.parameters.size(); ++i) {
    const zerolab::ParameterInfo& info = b.parameters.info(i);
    CHECK(info.unit == (info.name.rfind("blocks.", 0) == 0 ? 1 + (info.name[7] - '0') : 0));
  }
}

TEST_CASE("model/mini_gpt starts as PyTorch's modules do (statistical)") {
  Bound b({{"dim_feedforward", int64_t{512}}}, 1000, 32);
  const auto widest = [&](const std::string& name) { return largest(b.tensor(name).detach()); };
  // The largest of thousands of uniform draws comes near the bound, never beyond it.
  const auto bounded = [&](const std::string& name, double bound) {
    CAPTURE(name);
    CHECK(widest(name) <= bound * (1 + 1e-6));
    CHECK(widest(name) > bound * 0.95);
  };
  bounded("blocks.0.attention.qkv.weight", std::sqrt(6.0 / (128 + 384)));
  bounded("blocks.0.attention.proj.weight", 1 / std::sqrt(128.0));
  bounded("blocks.1.mlp.fc.weight", 1 / std::sqrt(128.0));
  bounded("blocks.1.mlp.fc.bias", 1 / std::sqrt(128.0));
  bounded("blocks.1.mlp.proj.weight", 1 / std::sqrt(512.0));
  bounded("blocks.1.mlp.proj.bias", 1 / std::sqrt(512.0));
  bounded("head.weight", 1 / std::sqrt(128.0));
  bounded("head.bias", 1 / std::sqrt(128.0));
  CHECK(widest("blocks.0.attention.qkv.bias") == 0);
  CHECK(widest("blocks.0.attention.proj.bias") == 0);
  CHECK(b.tensor("embedding.weight").detach().std().item<double>() == Approx(1).epsilon(0.02));
  // Normed rows of length sqrt(C) through such a head: logits of variance 1/3 add about 1/6.
  const double mean = b.loss().item<double>() / static_cast<double>(b.batch.num_targets);
  CHECK(mean == Approx(std::log(1000.0) + 1.0 / 6).margin(0.3));
}

TEST_CASE("model/mini_gpt is causal: a later token changes no earlier logit (bit-identical)") {
  for (double dropout : {0.0, 0.3}) {
    CAPTURE(dropout);
    Bound b(tiny({{"dropout", dropout}}));
    check_causal(b, /*training=*/dropout > 0);
  }
}

TEST_CASE("model/mini_gpt without the causal mask sees later tokens and keeps no cache") {
  Bound b(tiny({{"causal", false}}));
  at::Tensor changed = b.batch.tokens.clone();
  changed.select(1, 5).add_(1).remainder_(11);
  const at::Tensor before = b.logits(), after = b.model->logits(changed, b.units);
  CHECK(largest(before.select(1, 0) - after.select(1, 0)) > 1e-4);
  CHECK_FALSE(b.model->has_cache());
  zerolab::KeyValueCache cache;
  cache.capacity = 6;
  CHECK_THROWS_AS(b.model->next_logits(b.batch.tokens, b.units, cache), zerolab::PluginError);
}

TEST_CASE("model/mini_gpt reads with a cache what it reads without") {
  Bound b(tiny());
  disturb(b);
  check_cache(b);
  check_full_cache(b);
}

TEST_CASE("model/mini_gpt returns a float32 sum over the counted targets") {
  Bound b(tiny());
  check_loss_is_sum(b);
}

TEST_CASE("model/mini_gpt takes texts of any length") {
  Bound b(tiny());
  const at::Tensor part = b.model->logits(b.batch.tokens.slice(1, 0, 4), b.units);
  CHECK(largest(part - b.logits().slice(1, 0, 4)) < 1e-5);
  CHECK(b.model->logits(at::zeros({1, 20}, at::kLong), b.units).size(1) == 20);
}

TEST_CASE("model/mini_gpt computes under autocast and with parameters in 16 bits") {
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    CAPTURE(dtype);
    Bound b(tiny());
    check_autocast(b, dtype, 0.08, 0.01);
    Bound low(tiny(), 11, 6, 1, dtype), exact(tiny());
    check_sixteen_bits(low, exact, 0.08, 0.01);
  }
}

TEST_CASE("model/mini_gpt draws dropout from its key alone, on recomputation too") {
  Bound b(tiny({{"dropout", 0.3}})), without(tiny());
  check_recomputation(b);
  const double first = b.loss(1).item<double>();
  CHECK(b.loss(1).item<double>() == first);
  CHECK(b.loss(2).item<double>() != first);
  b.units.begin(/*training=*/false, 1);
  CHECK(b.loss().item<double>() == without.loss().item<double>());
}

TEST_CASE("model/mini_gpt names its weights as nn.TransformerEncoder does") {
  Bound b(tiny());
  check_layouts(b, {"pytorch"});
  const zerolab::WeightLayout layout = b.model->weight_layouts().front();
  CHECK(layout.weights.size() == b.parameters.size());
  CHECK(layout.weights[1].name == "encoder.layers.0.self_attn.in_proj_weight");
}

TEST_CASE("model/mini_gpt refuses heads that do not divide the width") {
  CHECK(option_problems("model/mini_gpt", {{"num_heads", int64_t{5}}}) ==
        std::vector<std::string>{"num_heads: must divide embedding_dim (128), is 5"});
  CHECK_FALSE(option_problems("model/mini_gpt", {{"dropout", 1.0}}).empty());
  CHECK(option_problems("model/mini_gpt", {}).empty());
}
