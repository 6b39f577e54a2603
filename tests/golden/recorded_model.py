"""Records one setting of a model: weights, and the logits, loss and gradients that they give in double precision.

The weights are float32, so that every program starts from the same numbers; all that follows from them is computed
in float64 and rounded once, so that a test sees only the rounding of what it tests.
"""
import torch

IGNORED = -100


def spread(module, generator):
    """Random weights that leave no parameter without effect: norms around one, everything else around zero."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            mean = 1.0 if parameter.dim() == 1 and name.endswith("weight") else 0.0
            parameter.copy_(mean + 0.2 * torch.randn(parameter.shape, generator=generator))


def batch(vocab, sequences, length, generator):
    """Tokens and targets; the second sequence's last two targets are not counted."""
    tokens = torch.randint(vocab, (sequences, length), generator=generator)
    targets = torch.randint(vocab, (sequences, length), generator=generator)
    targets[1, -2:] = IGNORED
    return tokens, targets


def loss_sum(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED,
                                             reduction="sum")


def float32(tensor):
    return tensor.detach().to(torch.float32).numpy()


def float32_transposed(tensor):
    return float32(tensor.t().contiguous())


def record(group, *, module, forward, model, options, vocab, length, layout, generator, sequences=3, causal=True,
           rename=lambda name: name, transposed=lambda name: False):
    """`forward(module, tokens)` gives logits. `layout`: how the weights are named; "": as the plugin names them.
    `rename` makes these names of the module's own, and `transposed` says which weights the layout holds that way."""
    module = module.double()
    tokens, targets = batch(vocab, sequences, length, generator)
    group.attrs["model"] = model
    group.attrs["layout"] = layout
    group.attrs["causal"] = int(causal)
    group.attrs["vocab_size"] = vocab
    group.attrs["sequence_length"] = length
    given = group.create_group("options")
    for name, value in options.items():
        given.attrs[name] = value
    weights = group.create_group("weights")
    gradients = group.create_group("gradients")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.float())
    logits = forward(module, tokens)
    loss = loss_sum(logits, targets)
    loss.backward()
    for name, parameter in module.named_parameters():
        turn = float32_transposed if transposed(name) else float32
        weights[rename(name)] = turn(parameter)
        gradients[rename(name)] = turn(parameter.grad)
    group["tokens"], group["targets"] = tokens.numpy(), targets.numpy()
    group["logits"], group["loss"] = float32(logits), loss.item()
    # The same text with another token in the middle.
    changed = tokens.clone()
    position = length // 2
    changed[:, position] = (changed[:, position] + 1) % vocab
    group.attrs["changed_position"] = position
    group["changed_tokens"] = changed.numpy()
    with torch.no_grad():
        group["changed_logits"] = float32(forward(module, changed))
