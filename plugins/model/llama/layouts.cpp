// How transformers' LlamaForCausalLM names the weights, and its configuration.
// Source: transformers, modeling_llama.py and configuration_llama.py.

#include <string>
#include <utility>
#include <vector>

#include "llama.h"

namespace llama {

std::vector<zerolab::WeightLayout> Llama::weight_layouts() const {
  zerolab::WeightLayout layout;
  layout.name = "huggingface";
  layout.weights = {{"model.embed_tokens.weight", "embedding.weight"}};
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
    const std::string theirs = "model.layers." + std::to_string(layer);
    const std::string ours = "blocks." + std::to_string(layer);
    for (const auto& [their_part, our_part] : {std::pair{".input_layernorm", ".attention_norm"},
                                               {".self_attn.q_proj", ".attention.q"},
                                               {".self_attn.k_proj", ".attention.k"},
                                               {".self_attn.v_proj", ".attention.v"},
                                               {".self_attn.o_proj", ".attention.proj"},
                                               {".post_attention_layernorm", ".mlp_norm"},
                                               {".mlp.gate_proj", ".mlp.gate"},
                                               {".mlp.up_proj", ".mlp.up"},
                                               {".mlp.down_proj", ".mlp.down"}}) {
      layout.weights.push_back({theirs + their_part + ".weight", ours + our_part + ".weight"});
    }
  }
  layout.weights.push_back({"model.norm.weight", "final_norm.weight"});
  layout.weights.push_back({"lm_head.weight", "lm_head.weight"});
  layout.ignored_suffixes = {".rotary_emb.inv_freq"};
  layout.config_json = config_json();
  layout.settings = {{"num_attention_heads", {std::to_string(options_.num_heads)}},
                     {"num_key_value_heads", {std::to_string(options_.kv_heads())}},
                     {"hidden_act", {"\"silu\"", "\"swish\""}},
                     {"rms_norm_eps", {zerolab::to_toml(zerolab::OptionValue(options_.norm_eps))}},
                     {"rope_theta", {zerolab::to_toml(zerolab::OptionValue(options_.rope_theta))}},
                     {"rope_scaling", {"null"}}};
  return {std::move(layout)};
}

std::string Llama::config_json() const {
  const auto number = [](double value) { return zerolab::to_toml(zerolab::OptionValue(value)); };
  const auto count = [](int64_t value) { return std::to_string(value); };
  // The beginning and end of text are not this model's to know: left out, they are the tokens of
  // Llama's own vocabulary.
  return "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\"" +
         std::string(",\n  \"vocab_size\": ") + count(vocab_size_) +
         ",\n  \"max_position_embeddings\": " + count(sequence_length_) +
         ",\n  \"hidden_size\": " + count(options_.embedding_dim) +
         ",\n  \"intermediate_size\": " + count(options_.feed_forward()) +
         ",\n  \"num_hidden_layers\": " + count(options_.num_layers) +
         ",\n  \"num_attention_heads\": " + count(options_.num_heads) +
         ",\n  \"num_key_value_heads\": " + count(options_.kv_heads()) +
         ",\n  \"head_dim\": " + count(options_.head_dim()) +
         ",\n  \"hidden_act\": \"silu\",\n  \"rms_norm_eps\": " + number(options_.norm_eps) +
         ",\n  \"rope_theta\": " + number(options_.rope_theta) +
         ",\n  \"initializer_range\": " + number(options_.init_std) +
         ",\n  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n  \"attention_bias\": false,\n  "
         "\"mlp_bias\": false,\n  \"tie_word_embeddings\": " +
         (options_.tie_embeddings ? "true" : "false") + "\n}\n";
}

}  // namespace llama
