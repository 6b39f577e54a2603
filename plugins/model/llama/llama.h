#pragma once
// The Llama family: norms by the root mean square, rotary positions, a gated feed-forward, and
// fewer heads of keys than of queries where asked.
//
//   x = embedding[tokens]
//   per block: x = x + proj(attention(rotate(q(n)), rotate(k(n)), v(n))), n = norm(x)
//              x = x + down(silu(gate(n)) * up(n)), n = norm(x)
//   logits = head(norm(x)), a weight of its own unless tie_embeddings = true
//   norm(x) = x / sqrt(mean(x^2) + eps) * weight
//   rotate: channels i and i + D/2 of a head turn by p * rope_theta^(-2i/D) at position p
//
// Shapes: B sequences, T tokens, C channels (embedding_dim), H heads, G heads of keys and values,
// D = C / H, F feed-forward, V vocabulary.
// Source: Touvron et al., arXiv 2302.13971, section 2.2; rotary positions: Su et al., arXiv
// 2104.09864, section 3.4.2, with halves instead of neighbours paired, as transformers'
// LlamaForCausalLM has them, so that its weights load unchanged.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "zerolab/model.h"
#include "zerolab/options.h"

namespace llama {

class Llama : public zerolab::Model {
 public:
  struct Options {
    int64_t num_layers = 12;
    int64_t num_heads = 12;
    int64_t num_kv_heads = 0;
    int64_t embedding_dim = 768;
    int64_t ffn_dim = 0;
    int64_t ffn_multiple = 256;
    double rope_theta = 10000;
    double norm_eps = 1e-5;
    bool tie_embeddings = false;
    double init_std = 0.02;
    static void describe(zerolab::Describe<Options>& d);
    void check(zerolab::Problems& problems) const;
    int64_t kv_heads() const { return num_kv_heads == 0 ? num_heads : num_kv_heads; }
    int64_t head_dim() const { return embedding_dim / num_heads; }
    /// 8/3 of the width, as three matrices then weigh what two of four widths do.
    int64_t feed_forward() const {
      if (ffn_dim != 0) return ffn_dim;
      return (8 * embedding_dim / 3 + ffn_multiple - 1) / ffn_multiple * ffn_multiple;
    }
  };
  explicit Llama(const Options& options) : options_(options) {}

  void declare(zerolab::Parameters& parameters, const zerolab::ModelContext& context) override;
  at::Tensor loss(const zerolab::Batch& batch, zerolab::Units& units) override;
  at::Tensor logits(const at::Tensor& tokens_BT, zerolab::Units& units) override;
  bool has_cache() const override { return true; }
  at::Tensor next_logits(const at::Tensor& tokens_BT, zerolab::Units& units,
                         zerolab::KeyValueCache& cache) override;
  std::vector<zerolab::WeightLayout> weight_layouts() const override;

 private:
  struct Block {
    int unit = 0;
    size_t layer = 0;
    at::Tensor attention_norm, q, k, v, attention_out, mlp_norm, gate, up, down;
  };
  /// Of the angle of each position and pair of channels, [positions, D/2] float32.
  struct Rotations {
    at::Tensor cos, sin;
  };

  at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) const;
  /// Makes `rotations_` reach `positions`, where the model computes. Outside of units.
  void reach(int64_t positions);
  at::Tensor rotate(const at::Tensor& x_BHTD, int64_t first_position) const;
  /// Everything below the head. The cache is null for a text that is read whole.
  at::Tensor body(const at::Tensor& tokens_BT, zerolab::Units& units,
                  zerolab::KeyValueCache* cache);
  at::Tensor run_block(const Block& block, const at::Tensor& x_BTC, int64_t first_position,
                       zerolab::KeyValueCache* cache, zerolab::UnitScope& scope) const;
  at::Tensor head(const at::Tensor& x_BTC) const;
  std::string config_json() const;

  Options options_;
  int64_t vocab_size_ = 0, sequence_length_ = 0;
  at::Tensor embedding_, final_norm_, head_;
  std::vector<Block> blocks_;
  Rotations rotations_;
};

}  // namespace llama
