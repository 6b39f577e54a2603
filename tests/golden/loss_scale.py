"""torch.amp.GradScaler's scale over 60 steps, some of which overflow.

Each step is a whole one: a loss is scaled, gradients are unscaled, the optimizer steps or not, the scale is updated.
"""
import torch

STEPS = 60
SETTINGS = {  # growth_factor, backoff_factor, growth_interval, init_scale, steps that overflow
    "no_overflow": (2.0, 0.5, 7, 2.0**8, ()),
    "single": (2.0, 0.5, 5, 2.0**16, (0, 11, 13, 37)),
    "in_a_row": (2.0, 0.5, 4, 2.0**10, (6, 7, 8, 9, 20, 21, 40)),
    "before_growth": (4.0, 0.25, 3, 2.0**6, (2, 5, 8, 11, 30, 31)),
    "below_one": (2.0, 0.5, 3, 2.0**4, tuple(range(10))),
}


def trajectory(growth, backoff, interval, start, overflows):
    scaler = torch.amp.GradScaler("cpu", init_scale=start, growth_factor=growth, backoff_factor=backoff,
                                  growth_interval=interval)
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], lr=1e-3)
    scales, stepped = [], []
    for step in range(STEPS):
        scales.append(scaler.get_scale())
        before = parameter.detach().clone()
        optimizer.zero_grad()
        loss = parameter.sum() * (float("inf") if step in overflows else 1.0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        stepped.append(not torch.equal(before, parameter))
    assert stepped == [step not in overflows for step in range(STEPS)]
    return scales + [scaler.get_scale()]


def generate(group, seed):
    del seed  # nothing is random
    for title, (growth, backoff, interval, start, overflows) in SETTINGS.items():
        case = group.create_group(title)
        options = case.create_group("options")
        options.attrs["growth_factor"], options.attrs["backoff_factor"] = growth, backoff
        options.attrs["growth_interval"], options.attrs["init_scale"] = interval, start
        case["scales"] = trajectory(growth, backoff, interval, start, overflows)  # before each step, after the last
        case["finite"] = [step not in overflows for step in range(STEPS)]
