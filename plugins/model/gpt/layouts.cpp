// How transformers (GPT2LMHeadModel, GPT2Model) and nanoGPT name the weights. A layout is given
// only where that program computes the same function with them.
// Source: transformers, modeling_gpt2.py and pytorch_utils.py (Conv1D holds [in, out]); nanoGPT,
// model.py.

#include <string>
#include <utility>
#include <vector>

#include "gpt.h"

namespace gpt {
namespace {

using zerolab::ForeignSetting;
using zerolab::ForeignWeight;
using zerolab::WeightLayout;

/// Everything but the head, under the names of GPT-2's first release.
std::vector<ForeignWeight> body_weights(const Options& options, const std::string& prefix,
                                        bool transposed) {
  std::vector<ForeignWeight> weights = {{prefix + "wte.weight", "wte.weight"},
                                        {prefix + "wpe.weight", "wpe.weight"}};
  const auto add = [&](const std::string& theirs, const std::string& ours, bool linear) {
    weights.push_back({prefix + theirs + ".weight", ours + ".weight", linear && transposed});
    if (options.bias) weights.push_back({prefix + theirs + ".bias", ours + ".bias"});
  };
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    const std::string theirs = "h." + std::to_string(layer);
    const std::string ours = "blocks." + std::to_string(layer);
    add(theirs + ".ln_1", ours + ".attention_norm", false);
    add(theirs + ".attn.c_attn", ours + ".attention.qkv", true);
    add(theirs + ".attn.c_proj", ours + ".attention.proj", true);
    add(theirs + ".ln_2", ours + ".mlp_norm", false);
    add(theirs + ".mlp.c_fc", ours + ".mlp.fc", true);
    add(theirs + ".mlp.c_proj", ours + ".mlp.proj", true);
  }
  add("ln_f", "final_norm", false);
  return weights;
}

std::string config_json(const Options& options, const Tables& tables,
                        const std::string& architecture) {
  const auto number = [](double value) { return zerolab::to_toml(zerolab::OptionValue(value)); };
  const auto count = [](int64_t value) { return std::to_string(value); };
  // Left out, they are GPT-2's end of text, 50256: right for its vocabulary alone.
  const bool smaller = tables.rows <= 50256;
  return "{\n  \"architectures\": [\"" + architecture +
         "\"],\n  \"model_type\": \"gpt2\",\n  \"vocab_size\": " + count(tables.rows) +
         ",\n  \"n_positions\": " + count(tables.positions) +
         ",\n  \"n_embd\": " + count(options.embedding_dim) +
         ",\n  \"n_layer\": " + count(options.num_layers) +
         ",\n  \"n_head\": " + count(options.num_heads) + ",\n  \"activation_function\": \"" +
         (options.gelu == "tanh" ? "gelu_new" : "gelu") +
         "\",\n  \"layer_norm_epsilon\": " + number(options.norm_eps) +
         ",\n  \"embd_pdrop\": " + number(options.dropout) +
         ",\n  \"resid_pdrop\": " + number(options.dropout) +
         ",\n  \"attn_pdrop\": " + number(options.attention_dropout) +
         ",\n  \"initializer_range\": " + number(options.init_std) +
         (smaller ? ",\n  \"bos_token_id\": null,\n  \"eos_token_id\": null" : "") +
         ",\n  \"tie_word_embeddings\": " + (options.tie_embeddings ? "true" : "false") + "\n}\n";
}

/// What a configuration of transformers has to agree with.
std::vector<ForeignSetting> settings(const Options& options) {
  const bool tanh = options.gelu == "tanh";
  return {{"n_head", {std::to_string(options.num_heads)}},
          {"activation_function",
           tanh ? std::vector<std::string>{"\"gelu_new\"", "\"gelu_pytorch_tanh\"", "\"gelu_fast\""}
                : std::vector<std::string>{"\"gelu\"", "\"gelu_python\""}},
          {"layer_norm_epsilon", {zerolab::to_toml(zerolab::OptionValue(options.norm_eps))}},
          {"scale_attn_weights", {"true"}},
          {"scale_attn_by_inverse_layer_idx", {"false"}}};
}

}  // namespace

std::vector<WeightLayout> weight_layouts(const Options& options, const Tables& tables) {
  std::vector<WeightLayout> layouts;
  if (tables.positions == 0 || options.head_bias) return layouts;
  // Masks that older versions saved. (With the point: "c_attn.bias" is a weight.)
  const std::vector<std::string> masks = {".attn.bias", ".attn.masked_bias"};
  const ForeignWeight head{"lm_head.weight", "lm_head.weight"};
  if (options.bias) {
    WeightLayout whole{"huggingface", body_weights(options, "transformer.", true), masks,
                       config_json(options, tables, "GPT2LMHeadModel"), settings(options)};
    whole.weights.push_back(head);
    layouts.push_back(std::move(whole));
  }
  if (options.bias && options.tie_embeddings) {
    layouts.push_back({"huggingface_base", body_weights(options, "", true), masks,
                       config_json(options, tables, "GPT2Model"), settings(options)});
  }
  // nanoGPT ties the head and has this epsilon, always; of GELU it has had both forms.
  if (options.tie_embeddings && options.norm_eps == 1e-5) {
    WeightLayout nano{"nanogpt", body_weights(options, "transformer.", false), masks, {}};
    nano.weights.push_back(head);
    layouts.push_back(std::move(nano));
  }
  return layouts;
}

}  // namespace gpt
