"""How plain PyTorch spreads a model over ranks, as its users write it: the peers of zerolab's sharding strategies.

`spread` takes the model that every rank has made whole and gives what is called and stepped instead of it.
`without_reduction` is the context of a micro-batch whose gradients are only added up.

    ddp          DistributedDataParallel                            sharding/ddp
    zero1        DistributedDataParallel, ZeroRedundancyOptimizer   sharding/zero1
    fsdp2_keep   fully_shard(reshard_after_forward=False)           sharding/zero2: the nearest that PyTorch has
    fsdp2        fully_shard of each block, then of the model       sharding/zero3
    fsdp2_mesh   the same on a mesh of N replicas of 1 shard        sharding/hsdp with shard_size = 1
"""
import contextlib

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

KINDS = ("ddp", "zero1", "fsdp2_keep", "fsdp2", "fsdp2_mesh")


def spread(kind, model, ranks, parameter_groups, **adamw):
    """The module to call and its AdamW. `parameter_groups(model)` are the groups of the model as it then is."""
    if kind in ("ddp", "zero1"):
        groups = parameter_groups(model)
        if kind == "ddp":
            return nn.parallel.DistributedDataParallel(model), torch.optim.AdamW(groups, **adamw)
        return (nn.parallel.DistributedDataParallel(model),
                ZeroRedundancyOptimizer(groups, optimizer_class=torch.optim.AdamW, **adamw))
    shape, names = ((ranks, 1), ("replicas", "shards")) if kind == "fsdp2_mesh" else ((ranks,), ("shards",))
    options = {"mesh": init_device_mesh("cpu", shape, mesh_dim_names=names)}
    if kind == "fsdp2_keep":
        options["reshard_after_forward"] = False
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    return model, torch.optim.AdamW(parameter_groups(model), **adamw)


@contextlib.contextmanager
def without_reduction(kind, module):
    if kind in ("ddp", "zero1"):
        with module.no_sync():
            yield
        return
    module.set_requires_gradient_sync(False)
    yield
    module.set_requires_gradient_sync(True)
