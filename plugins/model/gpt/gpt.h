#pragma once
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

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/model.h"
#include "zerolab/options.h"

namespace gpt {

struct Options {
  int64_t num_layers = 12;
  int64_t num_heads = 12;
  int64_t embedding_dim = 768;
  double dropout = 0;
  double attention_dropout = 0;
  bool bias = false;
  bool tie_embeddings = true;
  bool head_bias = false;
  std::string positions = "learned";
  int64_t max_positions = 0;
  std::string gelu = "exact";
  double norm_eps = 1e-5;
  double init_std = 0.02;
  bool scaled_residual_init = true;
  int64_t vocab_multiple = 1;
  static void describe(zerolab::Describe<Options>& d);
  void check(zerolab::Problems& problems) const;
};

/// What the options and the context make of the tables.
struct Tables {
  int64_t rows = 0;       ///< of the token embedding, padding included
  int64_t positions = 0;  ///< learned ones; 0 for none
};

/// How the programs that compute the same function name its weights.
std::vector<zerolab::WeightLayout> weight_layouts(const Options& options, const Tables& tables);

class Gpt : public zerolab::Model {
 public:
  using Options = gpt::Options;
  explicit Gpt(const Options& options) : options_(options) {}

  void declare(zerolab::Parameters& parameters, const zerolab::ModelContext& context) override;
  at::Tensor loss(const zerolab::Batch& batch, zerolab::Units& units) override;
  at::Tensor logits(const at::Tensor& tokens_BT, zerolab::Units& units) override;
  bool has_cache() const override { return true; }
  at::Tensor next_logits(const at::Tensor& tokens_BT, zerolab::Units& units,
                         zerolab::KeyValueCache& cache) override;
  std::vector<zerolab::WeightLayout> weight_layouts() const override {
    return gpt::weight_layouts(options_, tables_);
  }

 private:
  /// A linear map or a norm; without `bias` unless the options ask for it.
  struct Weights {
    at::Tensor weight, bias;
  };
  struct Block {
    int unit = 0;
    size_t layer = 0;
    Weights attention_norm, qkv, attention_out, mlp_norm, mlp_in, mlp_out;
  };

  Weights declare_norm(zerolab::Parameters& parameters, const std::string& name) const;
  Weights declare_linear(zerolab::Parameters& parameters, const std::string& name, int64_t out,
                         int64_t in, double stddev) const;
  at::Tensor norm(const at::Tensor& x, const Weights& w) const;
  /// Everything below the head. The cache is null for a text that is read whole.
  at::Tensor body(const at::Tensor& tokens_BT, zerolab::Units& units,
                  zerolab::KeyValueCache* cache) const;
  at::Tensor embed(const at::Tensor& tokens_BT, int64_t first_position,
                   zerolab::UnitScope& scope) const;
  at::Tensor run_block(const Block& block, const at::Tensor& x_BTC, zerolab::KeyValueCache* cache,
                       zerolab::UnitScope& scope) const;
  at::Tensor head(const at::Tensor& x_BTC) const;

  Options options_;
  int64_t vocab_size_ = 0;
  Tables tables_;
  at::Tensor token_embedding_, position_embedding_;
  Weights head_, final_norm_;
  std::vector<Block> blocks_;
};

}  // namespace gpt
