"""The gradient of one batch of 32 sequences, whole and clipped, for a small model of the GPT-2 family.

A test cuts the same batch into micro-batches and ranks.
"""
import torch

import nanogpt
import recorded_model

SEQUENCES, VOCAB, LENGTH, MAX_NORM = 32, 13, 8, 0.25


def generate(group, seed):
    generator = torch.Generator().manual_seed(seed)
    module = nanogpt.NanoGpt(vocab=VOCAB, length=LENGTH, layers=2, heads=2, width=8, bias=True)
    recorded_model.spread(module, generator)
    module = module.double()
    tokens, targets = recorded_model.batch(VOCAB, SEQUENCES, LENGTH, generator)
    targets[5:9, :3] = recorded_model.IGNORED  # so that micro-batches do not count alike
    loss = torch.nn.functional.cross_entropy(module(tokens).flatten(0, 1), targets.flatten(),
                                             ignore_index=recorded_model.IGNORED)
    loss.backward()
    options = group.create_group("options")
    for name, value in {"num_layers": 2, "num_heads": 2, "embedding_dim": 8, "bias": True}.items():
        options.attrs[name] = value
    group.attrs["vocab_size"], group.attrs["max_norm"] = VOCAB, MAX_NORM
    group["tokens"], group["targets"], group["loss"] = tokens.numpy(), targets.numpy(), loss.item()
    for name, parameter in module.named_parameters():
        group.require_group("weights")[name] = recorded_model.float32(parameter)
        group.require_group("gradients")[name] = recorded_model.float32(parameter.grad)
    group.attrs["norm"] = torch.nn.utils.clip_grad_norm_(module.parameters(), MAX_NORM).item()
    for name, parameter in module.named_parameters():
        group.require_group("clipped")[name] = recorded_model.float32(parameter.grad)
