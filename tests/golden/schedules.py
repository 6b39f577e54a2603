"""Learning rates of whole runs from torch.optim.lr_scheduler, put together so that the last step has the last value.

PyTorch counts the step after the last one as the end of a decay, so its lengths are one less than the run's.
"""
import math
import warnings

import torch
from torch.optim import lr_scheduler

STEPS, LR = 40, 3e-4
SHARES = {"linear": lambda x: 1 - x, "cosine": lambda x: (1 + math.cos(math.pi * x)) / 2,
          "one_minus_sqrt": lambda x: 1 - math.sqrt(x)}


def held(optimizer):
    return lr_scheduler.ConstantLR(optimizer, factor=1.0)


def warmup(optimizer, steps):
    if steps == 1:
        return held(optimizer)
    return lr_scheduler.LinearLR(optimizer, start_factor=1 / steps, total_iters=steps - 1)


def linear(optimizer, steps, min_lr):
    return lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=min_lr / LR, total_iters=steps)


def cosine(optimizer, steps, min_lr):
    return lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps, eta_min=min_lr)


def shaped(shape):
    def make(optimizer, steps, min_lr):
        def factor(step):
            return (min_lr + (LR - min_lr) * SHARES[shape](min(step / steps, 1))) / LR
        return lr_scheduler.LambdaLR(optimizer, factor)
    return make


def curve(parts, steps):
    """Rates of steps 0 to steps - 1; `parts`: (first step, make(optimizer))."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    schedulers = [make(optimizer) for _, make in parts]
    schedule = lr_scheduler.SequentialLR(optimizer, schedulers, [first for first, _ in parts[1:]])
    rates = []
    for _ in range(steps):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


def decayed(make, warmup_steps, min_lr, decay_steps):
    last = (decay_steps or STEPS) - 1
    parts = [(0, lambda o: warmup(o, warmup_steps))] if warmup_steps else []
    parts.append((warmup_steps, lambda o: make(o, last - warmup_steps, min_lr)))
    computed = min(STEPS, last + 1)
    rates = curve(parts, computed)
    return rates + [min_lr] * (STEPS - computed)


def wsd(warmup_steps, min_lr, fraction, shape):
    decay = round(fraction * STEPS)
    parts = [(0, lambda o: warmup(o, warmup_steps))] if warmup_steps else []
    parts.append((warmup_steps, held))
    if decay:
        parts.append((STEPS - 1 - decay, lambda o: shaped(shape)(o, decay, min_lr)))
    return curve(parts, STEPS)


def record(group, scheduler, rates, **options):
    group.attrs["scheduler"], group.attrs["num_steps"] = scheduler, STEPS
    given = group.create_group("options")
    for name, value in {"lr": LR, **options}.items():
        given.attrs[name] = value
    group["lr"] = rates


def generate(group, seed):
    del seed  # nothing is random
    warnings.filterwarnings("ignore", message="The epoch parameter")
    for steps in (0, 1, 7):
        rates = curve([(0, lambda o, s=steps: warmup(o, s) if s else held(o))], STEPS)
        record(group.create_group(f"constant_{steps}"), "constant", rates, warmup_steps=steps)
    for name, make in (("linear", linear), ("cosine", cosine)):
        for number, (steps, min_lr, decay) in enumerate([(0, 0.0, 0), (1, 3e-5, 0), (10, 3e-5, 0), (5, 3e-5, 25),
                                                         (5, 0.0, 80)]):
            record(group.create_group(f"{name}_{number}"), name, decayed(make, steps, min_lr, decay),
                   warmup_steps=steps, min_lr=min_lr, decay_steps=decay)
    for number, (steps, min_lr, fraction, shape) in enumerate([
            (0, 0.0, 0.25, "linear"), (5, 3e-5, 0.25, "linear"), (5, 0.0, 0.5, "cosine"),
            (10, 3e-5, 0.3, "one_minus_sqrt"), (3, 0.0, 0.0, "linear")]):
        record(group.create_group(f"wsd_{number}"), "wsd", wsd(steps, min_lr, fraction, shape), warmup_steps=steps,
               min_lr=min_lr, decay_fraction=fraction, decay_shape=shape)
