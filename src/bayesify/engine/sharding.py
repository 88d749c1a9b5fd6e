"""FSDP2 through Fabric: which parts of a network become units of their own."""

from typing import Any

from torch import nn


def shard(model: nn.Module, mesh: Any) -> nn.Module:
    """`fully_shard` every block of the network, then the model around it.

    A block is an element of a Sequential or ModuleList that has parameters; the outermost wins.
    """
    from torch.distributed.fsdp import fully_shard

    units: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        for child in module.children():
            if isinstance(module, nn.Sequential | nn.ModuleList) and any(True for _ in child.parameters()):
                units.append(child)
            else:
                visit(child)

    visit(model.net)  # type: ignore[arg-type]
    for unit in dict.fromkeys(units):
        fully_shard(unit, mesh=mesh["data_parallel"])
    fully_shard(model, mesh=mesh["data_parallel"])
    return model
