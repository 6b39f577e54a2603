#include "llama.h"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>

#include "zerolab/attention.h"
#include "zerolab/plugin.h"

namespace llama {

using zerolab::Init;

void Llama::Options::describe(zerolab::Describe<Options>& d) {
  d.field("num_layers", &Options::num_layers, "transformer blocks").at_least(1).at_most(10000);
  d.field("num_heads", &Options::num_heads,
          "heads of queries; divides embedding_dim into even widths")
      .at_least(1);
  d.field("num_kv_heads", &Options::num_kv_heads,
          "heads of keys and values; divides num_heads; 0 is num_heads")
      .at_least(0);
  d.field("embedding_dim", &Options::embedding_dim, "width of the residual stream")
      .at_least(1)
      .at_most(1 << 20);
  d.field("ffn_dim", &Options::ffn_dim,
          "width of the feed-forward; 0 is 8/3 embedding_dim, rounded up to a multiple of "
          "ffn_multiple")
      .at_least(0)
      .at_most(1 << 24);
  d.field("ffn_multiple", &Options::ffn_multiple,
          "what a feed-forward of ffn_dim = 0 is rounded to")
      .at_least(1)
      .at_most(1 << 20);
  d.field("rope_theta", &Options::rope_theta, "base of the rotary positions' wavelengths").above(0);
  d.field("norm_eps", &Options::norm_eps, "added to the mean square in norms").above(0);
  d.field("tie_embeddings", &Options::tie_embeddings, "the head is the token embedding");
  d.field("init_std", &Options::init_std, "standard deviation of the initial weights").above(0);
}

void Llama::Options::check(zerolab::Problems& problems) const {
  if (embedding_dim % num_heads != 0 || head_dim() % 2 != 0) {
    problems.add("num_heads", "must divide embedding_dim (" + std::to_string(embedding_dim) +
                                  ") into an even width for each head, is " +
                                  std::to_string(num_heads));
  }
  if (num_heads % kv_heads() != 0) {
    problems.add("num_kv_heads", "must be 0 or divide num_heads (" + std::to_string(num_heads) +
                                     "), is " + std::to_string(num_kv_heads));
  }
}

void Llama::declare(zerolab::Parameters& parameters, const zerolab::ModelContext& context) {
  const int64_t C = options_.embedding_dim, F = options_.feed_forward();
  const int64_t kv = options_.kv_heads() * options_.head_dim();
  const Init normal = Init::normal(0, options_.init_std);
  vocab_size_ = context.vocab_size;
  sequence_length_ = context.sequence_length;

  embedding_ = parameters.declare("embedding.weight", {vocab_size_, C}, normal);
  final_norm_ = parameters.declare("final_norm.weight", {C}, Init::ones());
  if (options_.tie_embeddings) {
    parameters.alias("embedding.weight", "lm_head.weight");
    head_ = embedding_;
  } else {
    head_ = parameters.declare("lm_head.weight", {vocab_size_, C}, normal);
  }
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
    const std::string name = "blocks." + std::to_string(layer);
    const auto declare = [&](const char* part, std::vector<int64_t> shape, Init init) {
      return parameters.declare(name + part + ".weight", std::move(shape), init);
    };
    Block block;
    block.unit = parameters.begin_unit(name);
    block.layer = static_cast<size_t>(layer);
    block.attention_norm = declare(".attention_norm", {C}, Init::ones());
    block.q = declare(".attention.q", {C, C}, normal);
    block.k = declare(".attention.k", {kv, C}, normal);
    block.v = declare(".attention.v", {kv, C}, normal);
    block.attention_out = declare(".attention.proj", {C, C}, normal);
    block.mlp_norm = declare(".mlp_norm", {C}, Init::ones());
    block.gate = declare(".mlp.gate", {F, C}, normal);
    block.up = declare(".mlp.up", {F, C}, normal);
    block.down = declare(".mlp.down", {C, F}, normal);
    blocks_.push_back(std::move(block));
  }
  parameters.end_unit();
}

at::Tensor Llama::norm(const at::Tensor& x, const at::Tensor& weight) const {
  return at::rms_norm(x, {options_.embedding_dim}, weight, options_.norm_eps);
}

void Llama::reach(int64_t positions) {
  const at::Device device = embedding_.device();
  const int64_t there = rotations_.cos.defined() ? rotations_.cos.size(0) : 0;
  if (positions <= there && rotations_.cos.device() == device) return;
  // Twice as many as before: a text that grows token by token makes few tables.
  const int64_t rows = std::max({positions, sequence_length_, 2 * there});
  // In float32, step by step as transformers makes them: at far positions the angle's rounding is
  // seen.
  const auto cpu = at::TensorOptions().dtype(at::kFloat);
  const auto D = static_cast<double>(options_.head_dim());
  const at::Tensor exponents = at::arange(0, options_.head_dim(), 2, cpu) / D;
  const at::Tensor frequencies = at::pow(options_.rope_theta, exponents).reciprocal();
  const at::Tensor angles = at::outer(at::arange(rows, cpu), frequencies);
  rotations_ = {at::cos(angles).to(device), at::sin(angles).to(device)};
}

at::Tensor Llama::rotate(const at::Tensor& x_BHTD, int64_t first_position) const {
  const int64_t T = x_BHTD.size(2), half = x_BHTD.size(3) / 2;
  const at::Tensor cos = rotations_.cos.narrow(0, first_position, T);
  const at::Tensor sin = rotations_.sin.narrow(0, first_position, T);
  const at::Tensor a = x_BHTD.narrow(3, 0, half), b = x_BHTD.narrow(3, half, half);
  // Products of 16-bit values with the tables are float32.
  return at::cat({a * cos - b * sin, b * cos + a * sin}, -1).to(x_BHTD.scalar_type());
}

at::Tensor Llama::body(const at::Tensor& tokens_BT, zerolab::Units& units,
                       zerolab::KeyValueCache* cache) {
  const int64_t first = cache == nullptr ? 0 : cache->length;
  reach(first + tokens_BT.size(1));
  // Units capture no locals: a recomputation may call them after this function has returned. (With
  // a cache there is none.)
  at::Tensor x_BTC = units.run(0, {tokens_BT}, [this](at::TensorList in, zerolab::UnitScope&) {
    return at::embedding(embedding_, in[0]);
  });
  for (const Block& block : blocks_) {
    x_BTC =
        units.run(block.unit, {x_BTC},
                  [this, b = &block, first, cache](at::TensorList in, zerolab::UnitScope& scope) {
                    return run_block(*b, in[0], first, cache, scope);
                  });
  }
  return x_BTC;
}

at::Tensor Llama::run_block(const Block& block, const at::Tensor& x_BTC, int64_t first_position,
                            zerolab::KeyValueCache* cache, zerolab::UnitScope& scope) const {
  const int64_t B = x_BTC.size(0), T = x_BTC.size(1);
  const int64_t C = options_.embedding_dim, D = options_.head_dim();
  const at::Tensor n_BTC = norm(x_BTC, block.attention_norm);
  const auto heads = [&](const at::Tensor& weight) {
    return at::linear(n_BTC, weight).view({B, T, -1, D}).transpose(1, 2);
  };
  const at::Tensor q_BHTD = rotate(heads(block.q), first_position);
  zerolab::KeysAndValues seen{rotate(heads(block.k), first_position), heads(block.v)};
  if (cache != nullptr) seen = zerolab::remember(*cache, block.layer, seen.keys, seen.values);
  const at::Tensor mixed_BHTD =
      zerolab::attend(q_BHTD, seen, /*causal=*/true, /*dropout=*/0, scope);
  const at::Tensor mixed_BTC = mixed_BHTD.transpose(1, 2).reshape({B, T, C});
  const at::Tensor y_BTC = x_BTC + at::linear(mixed_BTC, block.attention_out);

  const at::Tensor m_BTC = norm(y_BTC, block.mlp_norm);
  const at::Tensor hidden_BTF =
      at::silu(at::linear(m_BTC, block.gate)) * at::linear(m_BTC, block.up);
  return y_BTC + at::linear(hidden_BTF, block.down);
}

at::Tensor Llama::head(const at::Tensor& x_BTC) const {
  return at::linear(norm(x_BTC, final_norm_), head_);
}

at::Tensor Llama::loss(const zerolab::Batch& batch, zerolab::Units& units) {
  const at::Tensor x_BTC = body(batch.tokens, units, nullptr);
  return units.run(0, {x_BTC, batch.targets}, [this](at::TensorList in, zerolab::UnitScope&) {
    // In float32 whatever the compute dtype: nothing is copied if they are already.
    const at::Tensor logits_NV = head(in[0]).to(at::kFloat).reshape({-1, vocab_size_});
    return at::cross_entropy_loss(logits_NV, in[1].reshape({-1}), /*weight=*/{}, at::Reduction::Sum,
                                  zerolab::kIgnoredTarget);
  });
}

at::Tensor Llama::logits(const at::Tensor& tokens_BT, zerolab::Units& units) {
  return units.run(0, {body(tokens_BT, units, nullptr)},
                   [this](at::TensorList in, zerolab::UnitScope&) { return head(in[0]); });
}

at::Tensor Llama::next_logits(const at::Tensor& tokens_BT, zerolab::Units& units,
                              zerolab::KeyValueCache& cache) {
  const at::NoGradGuard no_grad;
  const int64_t T = tokens_BT.size(1);
  const at::Tensor last_B1C = body(tokens_BT, units, &cache).narrow(1, T - 1, 1);
  cache.length += T;
  return units
      .run(0, {last_B1C}, [this](at::TensorList in, zerolab::UnitScope&) { return head(in[0]); })
      .select(1, 0);
}

}  // namespace llama

ZEROLAB_PLUGIN(
    zerolab::entry<llama::Llama>("model/llama", "1.0.0",
                                 "Llama family: RMSNorm, rotary positions, SwiGLU, grouped "
                                 "queries",
                                 "Touvron et al., arXiv 2302.13971, section 2.2"));
