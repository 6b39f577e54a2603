"""Weights as transformers' GPT2LMHeadModel and as nanoGPT's module save them, with the logits that they give.

Beside interop.h5 stand the files themselves: gpt2_huggingface/, as save_pretrained() writes it, and
gpt2_nanogpt.safetensors.
"""
from pathlib import Path

import safetensors.torch
import torch
import transformers

import nanogpt
import recorded_model

VOCAB, LENGTH, LAYERS, HEADS, WIDTH = 100, 32, 2, 2, 32


def record(group, module, logits, options, path, generator):
    """`logits(module, tokens)`, in double precision from the saved float32 weights."""
    tokens = torch.randint(VOCAB, (2, LENGTH), generator=generator)
    with torch.no_grad():
        group["logits"] = recorded_model.float32(logits(module.double(), tokens))
    group["tokens"] = tokens.numpy()
    group.attrs["path"] = path
    group.attrs["vocab_size"] = VOCAB
    given = group.create_group("options")
    for name, value in {"num_layers": LAYERS, "num_heads": HEADS, "embedding_dim": WIDTH, **options}.items():
        given.attrs[name] = value


def huggingface(group, folder, generator):
    config = transformers.GPT2Config(vocab_size=VOCAB, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
                                     bos_token_id=0, eos_token_id=0)
    module = transformers.GPT2LMHeadModel(config).eval()
    recorded_model.spread(module, generator)
    module.save_pretrained(folder / "gpt2_huggingface")
    (folder / "gpt2_huggingface" / "generation_config.json").unlink(missing_ok=True)
    group.attrs["transformers"] = transformers.__version__
    record(group, module, lambda m, tokens: m(tokens).logits, {"bias": True, "gelu": "tanh"}, "gpt2_huggingface",
           generator)


def nano(group, folder, generator):
    module = nanogpt.NanoGpt(vocab=VOCAB, length=LENGTH, layers=LAYERS, heads=HEADS, width=WIDTH, bias=False)
    recorded_model.spread(module, generator)
    # The head is there twice, as in nanoGPT's own checkpoints.
    weights = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    safetensors.torch.save_file(weights, folder / "gpt2_nanogpt.safetensors")
    record(group, module, lambda m, tokens: m(tokens), {"bias": False}, "gpt2_nanogpt.safetensors", generator)


def generate(group, seed):
    folder = Path(group.file.filename).parent
    group.attrs["safetensors"] = safetensors.__version__
    huggingface(group.create_group("huggingface"), folder, torch.Generator().manual_seed(seed))
    nano(group.create_group("nanogpt"), folder, torch.Generator().manual_seed(seed + 1))
    for file in (folder / "gpt2_huggingface" / "model.safetensors", folder / "gpt2_nanogpt.safetensors"):
        file.chmod(0o644)  # safetensors makes them for their owner alone
