// Legend: B sequences, T tokens, C channels, H heads, G heads of keys and values, D = C / H, F
// feed-forward, V vocabulary, L layers.

#include <algorithm>
#include <cmath>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>

#include "zerolab/error.h"

#include "catch.h"
#include "model/bound_model.h"
#include "model/model_promises.h"

using namespace model_test;

namespace {

OptionValues tiny(const OptionValues& more = {}) {
  return with({{"num_layers", int64_t{2}},
               {"num_heads", int64_t{4}},
               {"num_kv_heads", int64_t{2}},
               {"embedding_dim", int64_t{16}},
               {"ffn_dim", int64_t{24}},
               {"init_std", 0.2}},
              more);
}

struct Bound : BoundModel {
  explicit Bound(const OptionValues& options, int64_t V = 11, int64_t T = 6, uint64_t seed = 1,
                 at::ScalarType dtype = at::kFloat)
      : BoundModel("model/llama", options, V, T, seed, dtype) {}
};

/// The same network from its definition, in double precision and without any of the operators that
/// the plugin uses.
class Reference {
 public:
  Reference(const Bound& bound, int64_t L, int64_t H, int64_t G, double theta)
      : bound_(bound), layers_(L), heads_(H), kv_heads_(G), theta_(theta) {}

  at::Tensor logits(const at::Tensor& tokens_BT) const {
    const int64_t B = tokens_BT.size(0), T = tokens_BT.size(1);
    at::Tensor x = w("embedding").index_select(0, tokens_BT.reshape({-1})).view({B, T, -1});
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const std::string name = "blocks." + std::to_string(layer);
      x = x + attention(norm(x, name + ".attention_norm"), name + ".attention");
      const at::Tensor n = norm(x, name + ".mlp_norm");
      const at::Tensor gate = linear(n, name + ".mlp.gate");
      x = x + linear(gate * at::sigmoid(gate) * linear(n, name + ".mlp.up"), name + ".mlp.down");
    }
    return linear(norm(x, "final_norm"), "lm_head");
  }

 private:
  at::Tensor w(const std::string& name) const {
    return bound_.tensor(name + ".weight").to(at::kDouble);
  }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, w(name).t());
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return x / ((x * x).mean(-1, true) + 1e-5).sqrt() * w(name);
  }
  /// Each position and pair on its own, as the formula says.
  at::Tensor turns(int64_t T, int64_t D, bool sine) const {
    at::Tensor table = at::empty({T, D / 2}, at::kDouble);
    for (int64_t p = 0; p < T; ++p) {
      for (int64_t i = 0; i < D / 2; ++i) {
        const double angle = static_cast<double>(p) *
                             std::pow(theta_, -2 * static_cast<double>(i) / static_cast<double>(D));
        table[p][i] = sine ? std::sin(angle) : std::cos(angle);
      }
    }
    return table;
  }
  at::Tensor rotate(const at::Tensor& x_BTD) const {
    const int64_t T = x_BTD.size(1), D = x_BTD.size(2);
    const at::Tensor cos = turns(T, D, false), sin = turns(T, D, true);
    const at::Tensor a = x_BTD.slice(2, 0, D / 2), b = x_BTD.slice(2, D / 2, D);
    return at::cat({a * cos - b * sin, a * sin + b * cos}, 2);
  }
  at::Tensor attention(const at::Tensor& x_BTC, const std::string& name) const {
    const int64_t T = x_BTC.size(1), D = x_BTC.size(2) / heads_;
    const at::Tensor q = linear(x_BTC, name + ".q"), k = linear(x_BTC, name + ".k"),
                     v = linear(x_BTC, name + ".v");
    const at::Tensor allowed = at::ones({T, T}, at::kBool).tril();
    std::vector<at::Tensor> mixed;
    for (int64_t h = 0; h < heads_; ++h) {
      const int64_t g = h / (heads_ / kv_heads_);
      const auto head = [&](const at::Tensor& x, int64_t i) {
        return x.slice(2, i * D, (i + 1) * D);
      };
      const at::Tensor scores = at::matmul(rotate(head(q, h)), rotate(head(k, g)).transpose(1, 2)) /
                                std::sqrt(static_cast<double>(D));
      const at::Tensor weights = at::softmax(scores.masked_fill(~allowed, -INFINITY), -1);
      mixed.push_back(at::matmul(weights, head(v, g)));
    }
    return linear(at::cat(mixed, -1), name + ".proj");
  }

  const Bound& bound_;
  int64_t layers_, heads_, kv_heads_;
  double theta_;
};

}  // namespace

TEST_CASE("model/llama computes what a definition in double precision computes, and gradients") {
  for (int64_t kv_heads : {4, 2, 1}) {
    for (bool tied : {false, true}) {
      for (double theta : {10000.0, 100.0}) {
        CAPTURE(kv_heads, tied, theta);
        Bound b(
            tiny({{"num_kv_heads", kv_heads}, {"tie_embeddings", tied}, {"rope_theta", theta}}));
        disturb(b);
        const at::Tensor expected = Reference(b, 2, 4, kv_heads, theta).logits(b.batch.tokens);
        CHECK(largest(b.logits() - expected) < 1e-5 * largest(expected));
        const std::vector<at::Tensor> gradients = b.gradients();
        b.forget_gradients();
        cross_entropy_sum(expected, b.batch.targets).backward();
        for (size_t i = 0; i < b.parameters.size(); ++i) {
          CAPTURE(b.parameters.info(i).name);
          const at::Tensor exact = b.parameters.tensor(i).grad();
          REQUIRE(gradients[i].defined());
          CHECK(largest(exact) > 0);
          CHECK(largest(gradients[i] - exact) < 2e-5 * std::max(1.0, largest(exact)));
        }
      }
    }
  }
}

TEST_CASE("model/llama has as many parameters as the closed form says") {
  const int64_t V = 65, C = 128, H = 4, G = 2, L = 3;
  const int64_t F = 512;  // 8/3 * 128 = 341, rounded up to 256s
  for (bool tied : {true, false}) {
    Bound b({{"num_layers", L},
             {"num_heads", H},
             {"num_kv_heads", G},
             {"embedding_dim", C},
             {"tie_embeddings", tied}},
            V, 64);
    const int64_t block = 2 * C * C + 2 * C * (G * C / H) + 3 * C * F + 2 * C;
    CHECK(b.parameters.total_numel() == V * C + L * block + C + (tied ? 0 : V * C));
    CHECK(b.parameters.num_units() == L + 1);
    for (size_t i = 0; i < b.parameters.size(); ++i) {
      const zerolab::ParameterInfo& info = b.parameters.info(i);
      CHECK(info.unit == (info.name.rfind("blocks.", 0) == 0 ? 1 + (info.name[7] - '0') : 0));
    }
  }
}

TEST_CASE("model/llama rounds its feed-forward up as the first release did") {
  Bound published({{"num_layers", int64_t{1}},
                   {"num_heads", int64_t{2}},
                   {"embedding_dim", int64_t{512}},
                   {"ffn_multiple", int64_t{256}}});
  CHECK(published.tensor("blocks.0.mlp.gate.weight").size(0) == 1536);
  Bound exact({{"num_layers", int64_t{1}},
               {"num_heads", int64_t{2}},
               {"embedding_dim", int64_t{512}},
               {"ffn_multiple", int64_t{1}}});
  CHECK(exact.tensor("blocks.0.mlp.gate.weight").size(0) == 1365);
}

TEST_CASE("model/llama is causal: a later token changes no earlier logit (bit-identical)") {
  Bound b(tiny());
  check_causal(b);
}

TEST_CASE("model/llama reads with a cache what it reads without") {
  for (int64_t kv_heads : {0, 2, 1}) {
    CAPTURE(kv_heads);
    Bound b(tiny({{"num_kv_heads", kv_heads}}));
    disturb(b);
    check_cache(b);
    check_full_cache(b);
  }
}

TEST_CASE("model/llama keeps only the heads of keys and values in its cache") {
  Bound b(tiny());
  zerolab::KeyValueCache cache;
  cache.capacity = 9;
  b.model->next_logits(b.batch.tokens, b.units, cache);
  REQUIRE(cache.keys.size() == 2);
  CHECK(cache.keys[1].sizes() == at::IntArrayRef({3, 2, 9, 4}));
  CHECK(cache.values[0].sizes() == at::IntArrayRef({3, 2, 9, 4}));
}

TEST_CASE("model/llama turns by distance alone, and reads beyond the trained length") {
  Bound b(tiny());
  CHECK(b.model->logits(at::zeros({1, 40}, at::kLong), b.units).size(1) == 40);
  const at::Tensor part = b.model->logits(b.batch.tokens.slice(1, 0, 4), b.units);
  CHECK(largest(part - b.logits().slice(1, 0, 4)) < 1e-5 * largest(part));
  // One repeated token: whatever the position, the values that attention mixes are the same.
  const at::Tensor same = b.model->logits(at::full({1, 6}, 3, at::kLong), b.units);
  CHECK(largest(same - same.narrow(1, 0, 1)) < 1e-5 * largest(same));
  // The order of earlier tokens does matter.
  at::Tensor swapped = b.batch.tokens.clone();
  swapped.select(1, 0).copy_(b.batch.tokens.select(1, 1));
  swapped.select(1, 1).copy_(b.batch.tokens.select(1, 0));
  CHECK(largest(b.model->logits(swapped, b.units).select(1, 5) - b.logits().select(1, 5)) > 1e-4);
}

TEST_CASE("model/llama returns a float32 sum over the counted targets") {
  Bound b(tiny());
  check_loss_is_sum(b);
}

TEST_CASE("model/llama computes under autocast and with parameters in 16 bits") {
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    CAPTURE(dtype);
    Bound b(tiny());
    check_autocast(b, dtype);
    Bound low(tiny(), 11, 6, 1, dtype), exact(tiny());
    check_sixteen_bits(low, exact);
  }
}

TEST_CASE("model/llama recomputes its blocks to the same gradients (bit-identical)") {
  Bound b(tiny());
  check_recomputation(b);
}

TEST_CASE("model/llama ties the head on demand: one parameter, two names") {
  Bound tied(tiny({{"tie_embeddings", true}})), untied(tiny());
  CHECK(tied.parameters.find("lm_head.weight") == tied.parameters.find("embedding.weight"));
  CHECK(untied.parameters.find("lm_head.weight") != untied.parameters.find("embedding.weight"));
}

TEST_CASE("model/llama names its weights as transformers does, none transposed") {
  for (bool tied : {false, true}) {
    Bound b(tiny({{"tie_embeddings", tied}}));
    check_layouts(b, {"huggingface"});
    const zerolab::WeightLayout layout = b.model->weight_layouts().front();
    CHECK(layout.weights[1].name == "model.layers.0.input_layernorm.weight");
    for (const zerolab::ForeignWeight& weight : layout.weights) CHECK_FALSE(weight.transposed);
    CHECK(layout.config_json.find("\"num_key_value_heads\": 2,") != std::string::npos);
  }
}

TEST_CASE("model/llama refuses heads that do not fit, and names the numbers") {
  CHECK(option_problems("model/llama", {{"num_heads", int64_t{5}}}) ==
        std::vector<std::string>{
            "num_heads: must divide embedding_dim (768) into an even width for each head, is 5"});
  CHECK(option_problems("model/llama", {{"num_heads", int64_t{768}}}).size() == 1);
  CHECK(option_problems("model/llama", {{"num_kv_heads", int64_t{5}}}) ==
        std::vector<std::string>{"num_kv_heads: must be 0 or divide num_heads (12), is 5"});
  CHECK(option_problems("model/llama", {}).empty());
}
