// A small transformer as PyTorch's nn.TransformerEncoder makes it: norms after each branch, ReLU,
// biases everywhere, and nothing that tells positions.
//
//   x = embedding[tokens]
//   per block: x = norm(x + dropout(proj(attention(x))))
//              x = norm(x + dropout(linear2(dropout(relu(linear1(x))))))
//   logits = head(x), a weight of its own with a bias
//
// causal = false leaves the mask away, as an encoder has it: a token then sees those after it, its
// own target among them, so a loss says nothing about prediction, and there is no cache.
//
// Shapes: B sequences, T tokens, C channels (embedding_dim), H heads, D = C / H, F dim_feedforward,
// V vocabulary.
// Source: Vaswani et al., arXiv 1706.03762, section 3.1; initial values as PyTorch draws them
// (nn.Embedding N(0, 1); nn.Linear and its bias U(+-1/sqrt(in)); nn.MultiheadAttention's input
// Xavier uniform, U(+-sqrt(6 / (in + out))), with both of its biases zero).
// Deviates: each block draws its own values, where nn.TransformerEncoder starts all from copies of
// one.

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>

#include "zerolab/attention.h"
#include "zerolab/model.h"
#include "zerolab/plugin.h"

namespace {

using zerolab::Init;

constexpr double kNormEps = 1e-5;

class MiniGpt : public zerolab::Model {
 public:
  struct Options {
    int64_t num_layers = 2;
    int64_t num_heads = 4;
    int64_t embedding_dim = 128;
    int64_t dim_feedforward = 2048;
    double dropout = 0;
    bool causal = true;
    double embedding_std = 1;
    static void describe(zerolab::Describe<Options>& d);
    void check(zerolab::Problems& problems) const {
      if (embedding_dim % num_heads != 0) {
        problems.add("num_heads", "must divide embedding_dim (" + std::to_string(embedding_dim) +
                                      "), is " + std::to_string(num_heads));
      }
    }
  };
  explicit MiniGpt(const Options& options) : options_(options) {}

  void declare(zerolab::Parameters& parameters, const zerolab::ModelContext& context) override;
  at::Tensor loss(const zerolab::Batch& batch, zerolab::Units& units) override;
  at::Tensor logits(const at::Tensor& tokens_BT, zerolab::Units& units) override;
  bool has_cache() const override { return options_.causal; }
  at::Tensor next_logits(const at::Tensor& tokens_BT, zerolab::Units& units,
                         zerolab::KeyValueCache& cache) override;
  std::vector<zerolab::WeightLayout> weight_layouts() const override;

 private:
  /// A linear map or a norm.
  struct Weights {
    at::Tensor weight, bias;
  };
  struct Block {
    int unit = 0;
    size_t layer = 0;
    Weights qkv, attention_out, attention_norm, mlp_in, mlp_out, mlp_norm;
  };

  static Weights declare_norm(zerolab::Parameters& parameters, const std::string& name, int64_t C);
  static Weights declare_linear(zerolab::Parameters& parameters, const std::string& name,
                                int64_t out, int64_t in, Init weight, Init bias);
  at::Tensor norm(const at::Tensor& x, const Weights& w) const {
    return at::layer_norm(x, {options_.embedding_dim}, w.weight, w.bias, kNormEps);
  }
  /// Everything below the head. The cache is null for a text that is read whole.
  at::Tensor body(const at::Tensor& tokens_BT, zerolab::Units& units,
                  zerolab::KeyValueCache* cache) const;
  at::Tensor run_block(const Block& block, const at::Tensor& x_BTC, zerolab::KeyValueCache* cache,
                       zerolab::UnitScope& scope) const;
  at::Tensor head(const at::Tensor& x_BTC) const {
    return at::linear(x_BTC, head_.weight, head_.bias);
  }

  Options options_;
  int64_t vocab_size_ = 0;
  at::Tensor embedding_;
  Weights head_;
  std::vector<Block> blocks_;
};

void MiniGpt::Options::describe(zerolab::Describe<Options>& d) {
  d.field("num_layers", &Options::num_layers, "transformer blocks").at_least(1).at_most(10000);
  d.field("num_heads", &Options::num_heads, "attention heads; divides embedding_dim").at_least(1);
  d.field("embedding_dim", &Options::embedding_dim, "width of the residual stream")
      .at_least(1)
      .at_most(1 << 20);
  d.field("dim_feedforward", &Options::dim_feedforward, "width between a block's two linear maps")
      .at_least(1)
      .at_most(1 << 24);
  d.field("dropout", &Options::dropout,
          "on the attention weights, inside the feed-forward and on each branch; above 0, training "
          "computes attention step by step")
      .at_least(0)
      .below(1);
  d.field("causal", &Options::causal,
          "a token sees only those before it; without, its own target too: no language model");
  d.field("embedding_std", &Options::embedding_std,
          "standard deviation of the initial token embedding")
      .above(0);
}

MiniGpt::Weights MiniGpt::declare_norm(zerolab::Parameters& parameters, const std::string& name,
                                       int64_t C) {
  Weights w;
  w.weight = parameters.declare(name + ".weight", {C}, Init::ones());
  w.bias = parameters.declare(name + ".bias", {C}, Init::zeros());
  return w;
}

MiniGpt::Weights MiniGpt::declare_linear(zerolab::Parameters& parameters, const std::string& name,
                                         int64_t out, int64_t in, Init weight, Init bias) {
  Weights w;
  w.weight = parameters.declare(name + ".weight", {out, in}, weight);
  w.bias = parameters.declare(name + ".bias", {out}, bias);
  return w;
}

void MiniGpt::declare(zerolab::Parameters& parameters, const zerolab::ModelContext& context) {
  const int64_t C = options_.embedding_dim, F = options_.dim_feedforward;
  const auto within = [](double bound) { return Init::uniform(-bound, bound); };
  const auto fan_in = [&](int64_t in) { return within(1 / std::sqrt(static_cast<double>(in))); };
  const Init xavier = within(std::sqrt(6 / static_cast<double>(C + 3 * C)));
  vocab_size_ = context.vocab_size;
  embedding_ = parameters.declare("embedding.weight", {vocab_size_, C},
                                  Init::normal(0, options_.embedding_std));
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
    const std::string name = "blocks." + std::to_string(layer);
    Block block;
    block.unit = parameters.begin_unit(name);
    block.layer = static_cast<size_t>(layer);
    block.qkv =
        declare_linear(parameters, name + ".attention.qkv", 3 * C, C, xavier, Init::zeros());
    block.attention_out =
        declare_linear(parameters, name + ".attention.proj", C, C, fan_in(C), Init::zeros());
    block.attention_norm = declare_norm(parameters, name + ".attention_norm", C);
    block.mlp_in = declare_linear(parameters, name + ".mlp.fc", F, C, fan_in(C), fan_in(C));
    block.mlp_out = declare_linear(parameters, name + ".mlp.proj", C, F, fan_in(F), fan_in(F));
    block.mlp_norm = declare_norm(parameters, name + ".mlp_norm", C);
    blocks_.push_back(std::move(block));
  }
  parameters.end_unit();
  head_ = declare_linear(parameters, "head", vocab_size_, C, fan_in(C), fan_in(C));
}

at::Tensor MiniGpt::body(const at::Tensor& tokens_BT, zerolab::Units& units,
                         zerolab::KeyValueCache* cache) const {
  // Units capture no locals: a recomputation may call them after this function has returned. (With
  // a cache there is none.)
  at::Tensor x_BTC = units.run(0, {tokens_BT}, [this](at::TensorList in, zerolab::UnitScope&) {
    return at::embedding(embedding_, in[0]);
  });
  for (const Block& block : blocks_) {
    x_BTC = units.run(block.unit, {x_BTC},
                      [this, b = &block, cache](at::TensorList in, zerolab::UnitScope& scope) {
                        return run_block(*b, in[0], cache, scope);
                      });
  }
  return x_BTC;
}

at::Tensor MiniGpt::run_block(const Block& block, const at::Tensor& x_BTC,
                              zerolab::KeyValueCache* cache, zerolab::UnitScope& scope) const {
  const int64_t B = x_BTC.size(0), T = x_BTC.size(1);
  const int64_t C = options_.embedding_dim, H = options_.num_heads;
  const double dropout = options_.dropout;
  const auto linear = [](const at::Tensor& x, const Weights& w) {
    return at::linear(x, w.weight, w.bias);
  };
  const std::vector<at::Tensor> qkv = linear(x_BTC, block.qkv).view({B, T, 3, H, C / H}).unbind(2);
  zerolab::KeysAndValues seen{qkv[1].transpose(1, 2), qkv[2].transpose(1, 2)};
  if (cache != nullptr) seen = zerolab::remember(*cache, block.layer, seen.keys, seen.values);
  const at::Tensor mixed_BHTD =
      zerolab::attend(qkv[0].transpose(1, 2), seen, options_.causal, dropout, scope);
  const at::Tensor mixed_BTC = mixed_BHTD.transpose(1, 2).reshape({B, T, C});
  const at::Tensor y_BTC = norm(
      x_BTC + scope.dropout(linear(mixed_BTC, block.attention_out), dropout), block.attention_norm);

  const at::Tensor hidden_BTF = scope.dropout(at::relu(linear(y_BTC, block.mlp_in)), dropout);
  return norm(y_BTC + scope.dropout(linear(hidden_BTF, block.mlp_out), dropout), block.mlp_norm);
}

at::Tensor MiniGpt::loss(const zerolab::Batch& batch, zerolab::Units& units) {
  const at::Tensor x_BTC = body(batch.tokens, units, nullptr);
  return units.run(0, {x_BTC, batch.targets}, [this](at::TensorList in, zerolab::UnitScope&) {
    // In float32 whatever the compute dtype: nothing is copied if they are already.
    const at::Tensor logits_NV = head(in[0]).to(at::kFloat).reshape({-1, vocab_size_});
    return at::cross_entropy_loss(logits_NV, in[1].reshape({-1}), /*weight=*/{}, at::Reduction::Sum,
                                  zerolab::kIgnoredTarget);
  });
}

at::Tensor MiniGpt::logits(const at::Tensor& tokens_BT, zerolab::Units& units) {
  return units.run(0, {body(tokens_BT, units, nullptr)},
                   [this](at::TensorList in, zerolab::UnitScope&) { return head(in[0]); });
}

at::Tensor MiniGpt::next_logits(const at::Tensor& tokens_BT, zerolab::Units& units,
                                zerolab::KeyValueCache& cache) {
  if (!options_.causal) return Model::next_logits(tokens_BT, units, cache);
  const at::NoGradGuard no_grad;
  const int64_t T = tokens_BT.size(1);
  const at::Tensor last_B1C = body(tokens_BT, units, &cache).narrow(1, T - 1, 1);
  cache.length += T;
  return units
      .run(0, {last_B1C}, [this](at::TensorList in, zerolab::UnitScope&) { return head(in[0]); })
      .select(1, 0);
}

/// A module that holds an nn.Embedding `embedding`, an nn.TransformerEncoder `encoder` and an
/// nn.Linear `head`.
std::vector<zerolab::WeightLayout> MiniGpt::weight_layouts() const {
  zerolab::WeightLayout layout;
  layout.name = "pytorch";
  layout.weights.push_back({"embedding.weight", "embedding.weight"});
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
    const std::string theirs = "encoder.layers." + std::to_string(layer);
    const std::string ours = "blocks." + std::to_string(layer);
    layout.weights.push_back(
        {theirs + ".self_attn.in_proj_weight", ours + ".attention.qkv.weight"});
    layout.weights.push_back({theirs + ".self_attn.in_proj_bias", ours + ".attention.qkv.bias"});
    for (const auto& [their_part, our_part] : {std::pair{".self_attn.out_proj", ".attention.proj"},
                                               {".norm1", ".attention_norm"},
                                               {".linear1", ".mlp.fc"},
                                               {".linear2", ".mlp.proj"},
                                               {".norm2", ".mlp_norm"}}) {
      for (const char* which : {".weight", ".bias"}) {
        layout.weights.push_back({theirs + their_part + which, ours + our_part + which});
      }
    }
  }
  layout.weights.push_back({"head.weight", "head.weight"});
  layout.weights.push_back({"head.bias", "head.bias"});
  return {std::move(layout)};
}

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<MiniGpt>("model/mini_gpt", "1.0.0",
                                       "small post-norm transformer as nn.TransformerEncoder's",
                                       "Vaswani et al., arXiv 1706.03762, section 3.1"));
