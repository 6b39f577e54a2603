"""20 updates of torch.optim's optimizers and of Lion, in float64, from float32 parameters and gradients.

Two parameters: one with weight decay and one without. Gradients come from a fixed distribution whose scale changes
from step to step, and some are exactly zero.
"""
import numpy
import torch

STEPS, LENGTH, LR = 20, 64, 1e-2
SETTINGS = {
    "adamw": ("adamw", torch.optim.AdamW, {"weight_decay": 0.1, "betas": (0.9, 0.95), "eps": 1e-8}),
    "adamw_defaults": ("adamw", torch.optim.AdamW, {"weight_decay": 0.0, "betas": (0.9, 0.999), "eps": 1e-6}),
    "adam": ("adam", torch.optim.Adam, {"weight_decay": 0.0, "betas": (0.9, 0.999), "eps": 1e-8}),
    "adam_decay": ("adam", torch.optim.Adam, {"weight_decay": 0.1, "betas": (0.9, 0.99), "eps": 1e-8}),
    "sgd": ("sgd", torch.optim.SGD, {"momentum": 0.0, "weight_decay": 0.0}),
    "sgd_decay": ("sgd", torch.optim.SGD, {"momentum": 0.0, "weight_decay": 0.1}),
    "sgd_momentum": ("sgd", torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "sgd_dampening": ("sgd", torch.optim.SGD, {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    "sgd_nesterov": ("sgd", torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "lion": ("lion", None, {"weight_decay": 0.1, "betas": (0.9, 0.99)}),
    "lion_no_decay": ("lion", None, {"weight_decay": 0.0, "betas": (0.95, 0.98)}),
}


class Lion:
    """Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675, algorithm 2; as numpy."""

    def __init__(self, groups, lr, betas):
        self.lr, (self.beta1, self.beta2) = lr, betas
        self.groups = groups
        self.momenta = [numpy.zeros(g["params"][0].numel()) for g in groups]

    def step(self):
        for group, m in zip(self.groups, self.momenta):
            parameter = group["params"][0]
            theta, g = parameter.detach().numpy(), parameter.grad.numpy()
            c = self.beta1 * m + (1 - self.beta1) * g
            theta -= self.lr * (numpy.sign(c) + group["weight_decay"] * theta)
            m[:] = self.beta2 * m + (1 - self.beta2) * g


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(2, LENGTH, generator=generator, dtype=torch.float32)
    scale = torch.exp(torch.randn(STEPS, 1, 1, generator=generator))
    gradients = scale * torch.randn(STEPS, 2, LENGTH, generator=generator, dtype=torch.float32)
    gradients[:, :, 5] = 0
    gradients[3:6, :, 6] = 0
    return start, gradients


def record(group, name, make, options, start, gradients):
    parameters = [torch.nn.Parameter(row.double()) for row in start]
    decays = [options["weight_decay"], 0.0]
    groups = [{"params": [p], "weight_decay": d} for p, d in zip(parameters, decays)]
    rest = {k: v for k, v in options.items() if k != "weight_decay"}
    optimizer = Lion(groups, LR, rest["betas"]) if make is None else make(groups, lr=LR, **rest)
    after = []
    for step in range(STEPS):
        for row, parameter in enumerate(parameters):
            parameter.grad = gradients[step, row].double()
        optimizer.step()
        after.append(torch.stack([p.detach().clone() for p in parameters]))
    group.attrs["optimizer"] = name
    given = group.create_group("options")
    for key, value in options.items():
        given.attrs[key] = value
    group["first"], group["last"] = after[0].numpy(), after[-1].numpy()
    states = group.create_group("states")
    if make is None:
        states["exp_avg"] = numpy.stack(optimizer.momenta)
        return
    by_parameter = [optimizer.state[p] for p in parameters]
    for state, value in by_parameter[0].items():
        if torch.is_tensor(value) and value.numel() == LENGTH:
            states[state] = torch.stack([s[state] for s in by_parameter]).numpy()


def generate(group, seed):
    start, gradients = inputs(seed)
    group["start"], group["gradients"], group.attrs["lr"] = start.numpy(), gradients.numpy(), LR
    settings = group.create_group("settings")
    for title, (name, make, options) in SETTINGS.items():
        record(settings.create_group(title), name, make, options, start, gradients)
