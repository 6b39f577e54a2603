"""model/gpt against the same network in plain torch, for each of its options that changes what is computed."""
import re

import torch

import nanogpt
import recorded_model

SIZES = {"vocab": 19, "length": 8, "layers": 2, "heads": 2, "width": 8}
PLAIN = {"bias": False, "tied": True, "gelu": "exact", "positions": True, "head_bias": False, "eps": 1e-5}
SETTINGS = {  # by the layout that the weights are recorded in
    "plain": ("nanogpt", {}),
    "biases": ("nanogpt", {"bias": True}),
    "tanh": ("nanogpt", {"gelu": "tanh"}),
    "gpt2": ("huggingface_base", {"bias": True, "gelu": "tanh"}),
    "untied": ("huggingface", {"bias": True, "tied": False, "gelu": "tanh", "eps": 1e-3}),
    "untied_plain": ("", {"tied": False}),
    "no_positions": ("", {"positions": False}),
    "head_bias": ("", {"bias": True, "head_bias": True}),
}
OURS = {"transformer.wte": "wte", "transformer.wpe": "wpe", "transformer.ln_f": "final_norm",
        "ln_1": "attention_norm", "ln_2": "mlp_norm", "attn.c_attn": "attention.qkv", "attn.c_proj": "attention.proj",
        "mlp.c_fc": "mlp.fc", "mlp.c_proj": "mlp.proj"}


def own_name(name):
    name = re.sub(r"^transformer\.h\.", "blocks.", name)
    for theirs, ours in OURS.items():
        name = name.replace(theirs, ours)
    return name


def renaming(layout):
    if layout == "":
        return own_name
    if layout == "huggingface_base":
        return lambda name: name.removeprefix("transformer.")
    return lambda name: name


def is_conv1d(name):
    """What transformers holds [in, out]."""
    return re.search(r"\.c_(attn|proj|fc)\.weight$", name) is not None


def generate(group, seed):
    for number, (title, (layout, changes)) in enumerate(SETTINGS.items()):
        setting = PLAIN | changes
        generator = torch.Generator().manual_seed(seed + number)
        module = nanogpt.NanoGpt(**SIZES, **setting)
        recorded_model.spread(module, generator)
        options = {"num_layers": SIZES["layers"], "num_heads": SIZES["heads"], "embedding_dim": SIZES["width"],
                   "bias": setting["bias"], "tie_embeddings": setting["tied"], "head_bias": setting["head_bias"],
                   "gelu": setting["gelu"], "positions": "learned" if setting["positions"] else "none",
                   "norm_eps": setting["eps"]}
        recorded_model.record(
            group.create_group(title), module=module, forward=lambda m, tokens: m(tokens), model="gpt",
            options=options, vocab=SIZES["vocab"], length=SIZES["length"], layout=layout, generator=generator,
            rename=renaming(layout), transposed=is_conv1d if layout.startswith("huggingface") else lambda name: False)
