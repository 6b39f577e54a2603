// The GPT-2 family: a decoder-only transformer with learned positions and a norm before each
// branch.
//
//   x = dropout(wte[tokens] + wpe[0..T))
//   per block: x = x + dropout(proj(attention(norm(x)))); x = x + dropout(proj(gelu(fc(norm(x)))))
//   logits = head(norm(x)), head = wte unless tie_embeddings = false
//
// Shapes: B sequences, T tokens, C channels (embedding_dim), H heads, D = C / H, V vocabulary, N
// = B * T.
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), section
// 2.3; sizes as in its table 2.
// Deviates: no biases unless bias = true; exact GELU unless gelu = "tanh".

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include "zerolab/error.h"
#include "zerolab/model.h"
#include "zerolab/plugin.h"

namespace {

using zerolab::Init;

class Gpt : public zerolab::Model {
 public:
  struct Options {
    int64_t num_layers = 12;
    int64_t num_heads = 12;
    int64_t embedding_dim = 768;
    double dropout = 0;
    double attention_dropout = 0;
    bool bias = false;
    bool tie_embeddings = true;
    std::string gelu = "exact";
    double init_std = 0.02;
    bool scaled_residual_init = true;
    int64_t vocab_multiple = 1;
    static void describe(zerolab::Describe<Options>& d);
    void check(zerolab::Problems& problems) const {
      if (embedding_dim % num_heads != 0) {
        problems.add("num_heads", "must divide embedding_dim (" + std::to_string(embedding_dim) +
                                      "), is " + std::to_string(num_heads));
      }
    }
  };
  explicit Gpt(const Options& options) : options_(options) {}

  void declare(zerolab::Parameters& parameters, const zerolab::ModelContext& context) override;
  at::Tensor loss(const zerolab::Batch& batch, zerolab::Units& units) override;
  at::Tensor logits(const at::Tensor& tokens_BT, zerolab::Units& units) override;

 private:
  /// A linear map or a norm; without `bias` unless the options ask for it.
  struct Weights {
    at::Tensor weight, bias;
  };
  struct Block {
    int unit = 0;
    Weights attention_norm, qkv, attention_out, mlp_norm, mlp_in, mlp_out;
  };

  Weights declare_norm(zerolab::Parameters& parameters, const std::string& name) const;
  Weights declare_linear(zerolab::Parameters& parameters, const std::string& name, int64_t out,
                         int64_t in, double stddev) const;
  at::Tensor norm(const at::Tensor& x, const Weights& w) const {
    return at::layer_norm(x, {options_.embedding_dim}, w.weight, w.bias);
  }
  at::Tensor body(const at::Tensor& tokens_BT, zerolab::Units& units) const;
  at::Tensor run_block(const Block& block, const at::Tensor& x_BTC,
                       zerolab::UnitScope& scope) const;
  at::Tensor attend(const at::Tensor& q_BHTD, const at::Tensor& k_BHTD, const at::Tensor& v_BHTD,
                    zerolab::UnitScope& scope) const;
  at::Tensor head(const at::Tensor& x_BTC) const;

  Options options_;
  int64_t vocab_size_ = 0, max_tokens_ = 0;
  at::Tensor token_embedding_, position_embedding_, head_;
  Weights final_norm_;
  std::vector<Block> blocks_;
};

void Gpt::Options::describe(zerolab::Describe<Options>& d) {
  d.field("num_layers", &Options::num_layers, "transformer blocks").at_least(1).at_most(10000);
  d.field("num_heads", &Options::num_heads, "attention heads; divides embedding_dim").at_least(1);
  d.field("embedding_dim", &Options::embedding_dim, "width of the residual stream")
      .at_least(1)
      .at_most(1 << 20);
  d.field("dropout", &Options::dropout, "after the embeddings and on each branch")
      .at_least(0)
      .below(1);
  d.field(
       "attention_dropout", &Options::attention_dropout,
       "on the attention weights; above 0, training computes attention step by step, because the "
       "fused kernel would draw from a global generator")
      .at_least(0)
      .below(1);
  d.field("bias", &Options::bias, "biases in linear maps and norms");
  d.field("tie_embeddings", &Options::tie_embeddings, "the head is the token embedding");
  d.field("gelu", &Options::gelu, "exact, or GPT-2's tanh approximation").one_of({"exact", "tanh"});
  d.field("init_std", &Options::init_std, "standard deviation of the initial weights").above(0);
  d.field("scaled_residual_init", &Options::scaled_residual_init,
          "divides init_std by the root of 2 num_layers where a branch joins the residual stream");
  d.field("vocab_multiple", &Options::vocab_multiple,
          "pads the embedding to a multiple of rows; padded words never reach loss or logits")
      .at_least(1)
      .at_most(1 << 20);
}

Gpt::Weights Gpt::declare_norm(zerolab::Parameters& parameters, const std::string& name) const {
  const int64_t C = options_.embedding_dim;
  Weights w{parameters.declare(name + ".weight", {C}, Init::ones()), {}};
  if (options_.bias) w.bias = parameters.declare(name + ".bias", {C}, Init::zeros());
  return w;
}

Gpt::Weights Gpt::declare_linear(zerolab::Parameters& parameters, const std::string& name,
                                 int64_t out, int64_t in, double stddev) const {
  Weights w{parameters.declare(name + ".weight", {out, in}, Init::normal(0, stddev)), {}};
  if (options_.bias) w.bias = parameters.declare(name + ".bias", {out}, Init::zeros());
  return w;
}

void Gpt::declare(zerolab::Parameters& parameters, const zerolab::ModelContext& context) {
  const int64_t C = options_.embedding_dim;
  const double std = options_.init_std;
  const double depth = 2 * static_cast<double>(options_.num_layers);
  const double residual_std = options_.scaled_residual_init ? std / std::sqrt(depth) : std;
  const int64_t multiple = options_.vocab_multiple;
  vocab_size_ = context.vocab_size;
  max_tokens_ = context.sequence_length;
  const int64_t rows = (vocab_size_ + multiple - 1) / multiple * multiple;

  token_embedding_ = parameters.declare("wte.weight", {rows, C}, Init::normal(0, std));
  position_embedding_ = parameters.declare("wpe.weight", {max_tokens_, C}, Init::normal(0, std));
  final_norm_ = declare_norm(parameters, "final_norm");
  if (options_.tie_embeddings) {
    parameters.alias("wte.weight", "lm_head.weight");
    head_ = token_embedding_;
  } else {
    head_ = parameters.declare("lm_head.weight", {rows, C}, Init::normal(0, std));
  }
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
    const std::string name = "blocks." + std::to_string(layer);
    Block block;
    block.unit = parameters.begin_unit(name);
    block.attention_norm = declare_norm(parameters, name + ".attention_norm");
    block.qkv = declare_linear(parameters, name + ".attention.qkv", 3 * C, C, std);
    block.attention_out = declare_linear(parameters, name + ".attention.proj", C, C, residual_std);
    block.mlp_norm = declare_norm(parameters, name + ".mlp_norm");
    block.mlp_in = declare_linear(parameters, name + ".mlp.fc", 4 * C, C, std);
    block.mlp_out = declare_linear(parameters, name + ".mlp.proj", C, 4 * C, residual_std);
    blocks_.push_back(std::move(block));
  }
  parameters.end_unit();
}

at::Tensor Gpt::body(const at::Tensor& tokens_BT, zerolab::Units& units) const {
  const int64_t T = tokens_BT.size(1);
  if (T > max_tokens_) {
    throw zerolab::Error("model/gpt has " + std::to_string(max_tokens_) +
                         " learned positions and was given " + std::to_string(T) +
                         " tokens; shorten the text or train with a larger batch.sequence_length.");
  }
  // Units capture no locals: a recomputation may call them after this function has returned.
  at::Tensor x_BTC =
      units.run(0, {tokens_BT}, [this](at::TensorList in, zerolab::UnitScope& scope) {
        const at::Tensor words_BTC = at::embedding(token_embedding_, in[0]);
        const at::Tensor positions_TC = position_embedding_.narrow(0, 0, in[0].size(1));
        return scope.dropout(words_BTC + positions_TC, options_.dropout);
      });
  for (const Block& block : blocks_) {
    x_BTC = units.run(block.unit, {x_BTC},
                      [this, b = &block](at::TensorList in, zerolab::UnitScope& scope) {
                        return run_block(*b, in[0], scope);
                      });
  }
  return x_BTC;
}

at::Tensor Gpt::run_block(const Block& block, const at::Tensor& x_BTC,
                          zerolab::UnitScope& scope) const {
  const int64_t B = x_BTC.size(0), T = x_BTC.size(1);
  const int64_t C = options_.embedding_dim, H = options_.num_heads;
  const auto linear = [](const at::Tensor& x, const Weights& w) {
    return at::linear(x, w.weight, w.bias);
  };
  const std::vector<at::Tensor> qkv =
      linear(norm(x_BTC, block.attention_norm), block.qkv).view({B, T, 3, H, C / H}).unbind(2);
  const at::Tensor mixed_BHTD =
      attend(qkv[0].transpose(1, 2), qkv[1].transpose(1, 2), qkv[2].transpose(1, 2), scope);
  const at::Tensor mixed_BTC = mixed_BHTD.transpose(1, 2).reshape({B, T, C});
  const at::Tensor y_BTC =
      x_BTC + scope.dropout(linear(mixed_BTC, block.attention_out), options_.dropout);

  const at::Tensor hidden = at::gelu(linear(norm(y_BTC, block.mlp_norm), block.mlp_in),
                                     options_.gelu == "tanh" ? "tanh" : "none");
  return y_BTC + scope.dropout(linear(hidden, block.mlp_out), options_.dropout);
}

at::Tensor Gpt::attend(const at::Tensor& q_BHTD, const at::Tensor& k_BHTD, const at::Tensor& v_BHTD,
                       zerolab::UnitScope& scope) const {
  if (!scope.training() || options_.attention_dropout == 0) {
    return at::scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, /*attn_mask=*/{},
                                            /*dropout_p=*/0, /*is_causal=*/true);
  }
  const int64_t T = q_BHTD.size(2);
  const double scale = 1 / std::sqrt(static_cast<double>(q_BHTD.size(3)));
  const at::Tensor scores = at::matmul(q_BHTD * scale, k_BHTD.transpose(2, 3));
  const double masked = -std::numeric_limits<double>::infinity();
  const at::Tensor mask_TT = at::full({T, T}, masked, scores.options()).triu(1);
  const at::Tensor weights = at::softmax(scores + mask_TT, -1);
  return at::matmul(scope.dropout(weights, options_.attention_dropout), v_BHTD);
}

at::Tensor Gpt::head(const at::Tensor& x_BTC) const {
  const at::Tensor logits_BTV = at::linear(norm(x_BTC, final_norm_), head_);
  return logits_BTV.size(-1) == vocab_size_ ? logits_BTV : logits_BTV.narrow(-1, 0, vocab_size_);
}

at::Tensor Gpt::loss(const zerolab::Batch& batch, zerolab::Units& units) {
  const at::Tensor x_BTC = body(batch.tokens, units);
  return units.run(0, {x_BTC, batch.targets}, [this](at::TensorList in, zerolab::UnitScope&) {
    // In float32 whatever the compute dtype: nothing is copied if they are already.
    const at::Tensor logits_NV = head(in[0]).to(at::kFloat).reshape({-1, vocab_size_});
    return at::cross_entropy_loss(logits_NV, in[1].reshape({-1}), /*weight=*/{}, at::Reduction::Sum,
                                  zerolab::kIgnoredTarget);
  });
}

at::Tensor Gpt::logits(const at::Tensor& tokens_BT, zerolab::Units& units) {
  return units.run(0, {body(tokens_BT, units)},
                   [this](at::TensorList in, zerolab::UnitScope&) { return head(in[0]); });
}

}  // namespace

ZEROLAB_PLUGIN(zerolab::entry<Gpt>("model/gpt", "1.0.0",
                                   "GPT-2 family: decoder-only, learned positions, norm first",
                                   "Radford et al. 2019, section 2.3"));
