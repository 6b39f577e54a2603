"""model/llama against transformers' LlamaForCausalLM, which computes norms, angles and softmax in float32."""
import torch
import transformers

import recorded_model

VOCAB, LENGTH, LAYERS, WIDTH, FEED_FORWARD = 19, 8, 2, 16, 24
SETTINGS = {  # heads, heads of keys and values, tied, base of the rotary positions, epsilon
    "grouped": (4, 2, False, 10000.0, 1e-5),
    "one_kv_head": (4, 1, False, 500000.0, 1e-6),
    "tied": (2, 2, True, 10000.0, 1e-5),
}


def generate(group, seed):
    group.attrs["transformers"] = transformers.__version__
    for number, (title, (heads, kv_heads, tied, theta, eps)) in enumerate(SETTINGS.items()):
        generator = torch.Generator().manual_seed(seed + number)
        config = transformers.LlamaConfig(
            vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=FEED_FORWARD, num_hidden_layers=LAYERS,
            num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=LENGTH,
            rms_norm_eps=eps, rope_theta=theta, tie_word_embeddings=tied, attn_implementation="eager")
        module = transformers.LlamaForCausalLM(config)
        recorded_model.spread(module, generator)
        recorded_model.record(
            group.create_group(title), module=module, forward=lambda m, tokens: m(tokens, use_cache=False).logits,
            model="llama", vocab=VOCAB, length=LENGTH, layout="huggingface", generator=generator,
            options={"num_layers": LAYERS, "num_heads": heads, "num_kv_heads": kv_heads, "embedding_dim": WIDTH,
                     "ffn_dim": FEED_FORWARD, "rope_theta": theta, "norm_eps": eps, "tie_embeddings": tied})
