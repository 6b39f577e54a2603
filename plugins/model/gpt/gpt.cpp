#include "gpt.h"

#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>

#include "zerolab/attention.h"
#include "zerolab/error.h"
#include "zerolab/plugin.h"

namespace gpt {

using zerolab::Init;

void Options::describe(zerolab::Describe<Options>& d) {
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
  d.field("bias", &Options::bias, "biases in the blocks' linear maps and in norms");
  d.field("tie_embeddings", &Options::tie_embeddings, "the head is the token embedding");
  d.field("head_bias", &Options::head_bias, "a bias for each word in the head");
  d.field("positions", &Options::positions,
          "a learned vector for each position, or nothing that tells positions")
      .one_of({"learned", "none"});
  d.field("max_positions", &Options::max_positions,
          "learned positions, at least batch.sequence_length; 0 is as many as that")
      .at_least(0)
      .at_most(1 << 24);
  d.field("gelu", &Options::gelu, "exact, or GPT-2's tanh approximation").one_of({"exact", "tanh"});
  d.field("norm_eps", &Options::norm_eps, "added to the variance in norms").above(0);
  d.field("init_std", &Options::init_std, "standard deviation of the initial weights").above(0);
  d.field("scaled_residual_init", &Options::scaled_residual_init,
          "divides init_std by the root of 2 num_layers where a branch joins the residual stream");
  d.field("vocab_multiple", &Options::vocab_multiple,
          "pads the embedding to a multiple of rows; padded words never reach loss or logits")
      .at_least(1)
      .at_most(1 << 20);
}

void Options::check(zerolab::Problems& problems) const {
  if (embedding_dim % num_heads != 0) {
    problems.add("num_heads", "must divide embedding_dim (" + std::to_string(embedding_dim) +
                                  "), is " + std::to_string(num_heads));
  }
  if (positions == "none" && max_positions != 0) {
    problems.add("max_positions",
                 "must be 0 with positions = \"none\", is " + std::to_string(max_positions));
  }
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
  const int64_t rows = (vocab_size_ + multiple - 1) / multiple * multiple;
  tables_.rows = rows;

  token_embedding_ = parameters.declare("wte.weight", {rows, C}, Init::normal(0, std));
  if (options_.positions == "learned") {
    const int64_t most = options_.max_positions;
    if (most != 0 && most < context.sequence_length) {
      throw zerolab::ConfigError(
          "model.max_positions must be 0 or at least batch.sequence_length (" +
          std::to_string(context.sequence_length) + "), is " + std::to_string(most) +
          "; give more positions or shorter texts.");
    }
    tables_.positions = most == 0 ? context.sequence_length : most;
    position_embedding_ =
        parameters.declare("wpe.weight", {tables_.positions, C}, Init::normal(0, std));
  }
  final_norm_ = declare_norm(parameters, "final_norm");
  if (options_.tie_embeddings) {
    parameters.alias("wte.weight", "lm_head.weight");
    head_.weight = token_embedding_;
  } else {
    head_.weight = parameters.declare("lm_head.weight", {rows, C}, Init::normal(0, std));
  }
  if (options_.head_bias) head_.bias = parameters.declare("lm_head.bias", {rows}, Init::zeros());
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
    const std::string name = "blocks." + std::to_string(layer);
    Block block;
    block.unit = parameters.begin_unit(name);
    block.layer = static_cast<size_t>(layer);
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

at::Tensor Gpt::norm(const at::Tensor& x, const Weights& w) const {
  return at::layer_norm(x, {options_.embedding_dim}, w.weight, w.bias, options_.norm_eps);
}

at::Tensor Gpt::body(const at::Tensor& tokens_BT, zerolab::Units& units,
                     zerolab::KeyValueCache* cache) const {
  const int64_t first = cache == nullptr ? 0 : cache->length;
  const int64_t last = first + tokens_BT.size(1);
  if (position_embedding_.defined() && last > tables_.positions) {
    throw zerolab::Error("model/gpt has " + std::to_string(tables_.positions) +
                         " learned positions and was given " + std::to_string(last) +
                         " tokens; shorten the text or train with a larger batch.sequence_length.");
  }
  // Units capture no locals: a recomputation may call them after this function has returned. (With
  // a cache there is none.)
  at::Tensor x_BTC =
      units.run(0, {tokens_BT}, [this, first](at::TensorList in, zerolab::UnitScope& scope) {
        return embed(in[0], first, scope);
      });
  for (const Block& block : blocks_) {
    x_BTC = units.run(block.unit, {x_BTC},
                      [this, b = &block, cache](at::TensorList in, zerolab::UnitScope& scope) {
                        return run_block(*b, in[0], cache, scope);
                      });
  }
  return x_BTC;
}

at::Tensor Gpt::embed(const at::Tensor& tokens_BT, int64_t first_position,
                      zerolab::UnitScope& scope) const {
  at::Tensor x_BTC = at::embedding(token_embedding_, tokens_BT);
  if (position_embedding_.defined()) {
    x_BTC = x_BTC + position_embedding_.narrow(0, first_position, tokens_BT.size(1));
  }
  return scope.dropout(x_BTC, options_.dropout);
}

at::Tensor Gpt::run_block(const Block& block, const at::Tensor& x_BTC,
                          zerolab::KeyValueCache* cache, zerolab::UnitScope& scope) const {
  const int64_t B = x_BTC.size(0), T = x_BTC.size(1);
  const int64_t C = options_.embedding_dim, H = options_.num_heads;
  const auto linear = [](const at::Tensor& x, const Weights& w) {
    return at::linear(x, w.weight, w.bias);
  };
  const std::vector<at::Tensor> qkv =
      linear(norm(x_BTC, block.attention_norm), block.qkv).view({B, T, 3, H, C / H}).unbind(2);
  zerolab::KeysAndValues seen{qkv[1].transpose(1, 2), qkv[2].transpose(1, 2)};
  if (cache != nullptr) seen = zerolab::remember(*cache, block.layer, seen.keys, seen.values);
  const at::Tensor mixed_BHTD = zerolab::attend(qkv[0].transpose(1, 2), seen, /*causal=*/true,
                                                options_.attention_dropout, scope);
  const at::Tensor mixed_BTC = mixed_BHTD.transpose(1, 2).reshape({B, T, C});
  const at::Tensor y_BTC =
      x_BTC + scope.dropout(linear(mixed_BTC, block.attention_out), options_.dropout);

  const at::Tensor hidden = at::gelu(linear(norm(y_BTC, block.mlp_norm), block.mlp_in),
                                     options_.gelu == "tanh" ? "tanh" : "none");
  return y_BTC + scope.dropout(linear(hidden, block.mlp_out), options_.dropout);
}

at::Tensor Gpt::head(const at::Tensor& x_BTC) const {
  const at::Tensor logits_BTV = at::linear(norm(x_BTC, final_norm_), head_.weight, head_.bias);
  return logits_BTV.size(-1) == vocab_size_ ? logits_BTV : logits_BTV.narrow(-1, 0, vocab_size_);
}

at::Tensor Gpt::loss(const zerolab::Batch& batch, zerolab::Units& units) {
  const at::Tensor x_BTC = body(batch.tokens, units, nullptr);
  return units.run(0, {x_BTC, batch.targets}, [this](at::TensorList in, zerolab::UnitScope&) {
    // In float32 whatever the compute dtype: nothing is copied if they are already.
    const at::Tensor logits_NV = head(in[0]).to(at::kFloat).reshape({-1, vocab_size_});
    return at::cross_entropy_loss(logits_NV, in[1].reshape({-1}), /*weight=*/{}, at::Reduction::Sum,
                                  zerolab::kIgnoredTarget);
  });
}

at::Tensor Gpt::logits(const at::Tensor& tokens_BT, zerolab::Units& units) {
  return units.run(0, {body(tokens_BT, units, nullptr)},
                   [this](at::TensorList in, zerolab::UnitScope&) { return head(in[0]); });
}

at::Tensor Gpt::next_logits(const at::Tensor& tokens_BT, zerolab::Units& units,
                            zerolab::KeyValueCache& cache) {
  const at::NoGradGuard no_grad;
  const int64_t T = tokens_BT.size(1);
  const at::Tensor last_B1C = body(tokens_BT, units, &cache).narrow(1, T - 1, 1);
  cache.length += T;
  return units
      .run(0, {last_B1C}, [this](at::TensorList in, zerolab::UnitScope&) { return head(in[0]); })
      .select(1, 0);
}

}  // namespace gpt

ZEROLAB_PLUGIN(zerolab::entry<gpt::Gpt>("model/gpt", "1.1.0",
                                        "GPT-2 family: decoder-only, learned positions, norm first",
                                        "Radford et al. 2019, section 2.3"));
