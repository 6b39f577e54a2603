"""torch.nn.utils.clip_grad_norm_ on gradients of several magnitudes and on many small tensors, in float64."""
import torch

SETTINGS = {  # standard deviations of the tensors, and the largest norm
    "even": ([1.0, 1.0, 1.0, 1.0], 1.0),
    "uneven": ([1e-12, 1e-3, 1.0, 1e3], 1.0),
    "tiny": ([1e-18, 1e-18, 1e-17], 1.0),
    "huge": ([1e15, 1e16], 0.5),
    "one_spike": ([0.0, 1e-4, 0.0], 0.01),
}


def generate(group, seed):
    for number, (title, (deviations, max_norm)) in enumerate(SETTINGS.items()):
        generator = torch.Generator().manual_seed(seed + number)
        case = group.create_group(title)
        parameters = []
        for index, deviation in enumerate(deviations):
            gradient = (deviation * torch.randn(48 + 32 * index, generator=generator, dtype=torch.float64)).float()
            if title == "one_spike" and index == 1:
                gradient[17] = 3.0
            parameter = torch.nn.Parameter(torch.zeros_like(gradient, dtype=torch.float64))
            parameter.grad = gradient.double()
            case.require_group("gradients")[str(index)] = gradient.numpy()
            parameters.append(parameter)
        norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        case.attrs["max_norm"] = max_norm
        case.attrs["norm"] = norm.item()
        for index, parameter in enumerate(parameters):
            case.require_group("clipped")[str(index)] = parameter.grad.numpy()
