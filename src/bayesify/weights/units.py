"""The units of a regression's targets: a network's output times their std and plus their mean, by a forward hook.

    y = mean + std · f(x)

A hook and not a layer, so that names of parameters stay; the numbers are a buffer, so that they go where the
network goes, into its files and copies. Gradients, curvatures and moments go through it as through any operation.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

NAME = "target_units"  # (heads, 2, outputs): what is added, and before it the factor
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def to_units(net: nn.Module, _: Any, output: Any) -> Any:
    """The hook: every head of the output times its factor, and moved."""
    heads = output if isinstance(output, tuple | list) else (output,)
    moved = tuple(head * row[1] + row[0] for head, row in zip(heads, getattr(net, NAME), strict=True))
    return moved if isinstance(output, tuple | list) else moved[0]


def set_units(nets: Iterable[nn.Module], rows: Tensor) -> None:
    """Every one of `nets` returns its output in these units from now on: (heads, 2, outputs)."""
    for net in nets:
        like = next(net.parameters(), rows)
        if NAME not in net._buffers:
            net.register_forward_hook(to_units)
        dtype = torch.promote_types(like.dtype, torch.float32)
        net.register_buffer(NAME, rows.to(like.device, dtype, copy=True))
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()  # compiled code does not ask for new hooks


def without_units(net: nn.Module) -> nn.Module:
    """`net` as it was."""
    if NAME in net._buffers:
        del net._buffers[NAME]
        for key, hook in list(net._forward_hooks.items()):
            if hook is to_units:
                del net._forward_hooks[key]
    return net


def like_stored(nets: Sequence[nn.Module], stored: Mapping[str, Sequence[int]], prefix: str) -> None:
    """`nets` have units, or none, as the tensors of a file have, by their shapes; the numbers are still to come."""
    shape = stored.get(prefix + NAME)
    if shape is None:
        for net in nets:
            without_units(net)
    elif len(shape) != 3 or shape[1] != 2:
        raise ValueError(f"{prefix}{NAME} has shape {tuple(shape)}: it must be (heads, 2, outputs)")
    elif any(tuple(getattr(net, NAME, torch.empty(0)).shape) != tuple(shape) for net in nets):
        set_units(nets, torch.stack([torch.zeros(shape[0], shape[2]), torch.ones(shape[0], shape[2])], 1))


def described(net: nn.Module) -> list[str]:
    """What `summary()` says of it."""
    rows = getattr(net, NAME, None)
    if rows is None:
        return []
    shift, factor = (", ".join(f"{value:.4g}" for value in row.tolist()[:3]) for row in rows[0])
    return [f"outputs are in units of the targets: f(x) · {factor} + {shift}"]


def folded(net: nn.Module) -> nn.Module:
    """The units in the weights of the last layer, where a chain of modules ends in one that is linear."""
    layer: Any = net
    while isinstance(layer, nn.Sequential) and len(layer):
        layer = layer[-1]
    rows = getattr(net, NAME, None)
    if rows is None or len(rows) > 1 or type(layer) not in LAYERS or layer.bias is None:
        return net
    if rows.shape[2] > 1 and not isinstance(layer, nn.Linear):
        return net
    names = [
        name
        for name, p in net.named_parameters(remove_duplicate=False)
        if p is layer.weight or p is layer.bias
    ]
    if len(names) != 2 or len(list(layer.parameters(recurse=False))) != 2:  # shared, or made of others
        return net
    shift, factor = rows[0]
    with torch.no_grad():
        layer.weight.mul_(factor.view(-1, *[1] * (layer.weight.dim() - 1)))
        layer.bias.mul_(factor).add_(shift)
    return without_units(net)
