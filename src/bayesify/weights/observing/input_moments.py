"""Watch one call of a network: the second moments of what enters its first layers."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.weights.observing.origins import eval_mode, execution_order

KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
FEW, MOST = 257, 1025  # inputs of an output, with its bias: always, and where rows are a quarter as many
ROWS = 2**14  # that are looked at, about


@torch.no_grad()
def input_moments(
    net: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    reduce: Callable[[Tensor], Tensor] = lambda moments: moments,
) -> dict[Tensor, tuple[Tensor | None, Tensor, int]]:
    """weight -> (bias, E x̃ x̃ᵀ of the inputs of an output, examples that is a mean of), x̃ = (x, 1) with a bias.

    Of layers that the data enter, with so few inputs that to go along their axes is not much dearer than the layer
    itself. Layers that use their weight in a way of their own are left out.

    reduce: means over all processes
    """
    found: dict[Tensor, tuple[Tensor | None, Tensor, int]] = {}

    def look(layer: Any, inputs: tuple[Any, ...]) -> None:
        weight, bias = layer.weight, layer.bias
        size = weight[0].numel() + (bias is not None) if len(weight) else 0
        x: Any = inputs[0] if inputs else None
        plain = isinstance(x, Tensor) and x.layout is torch.strided and not x.is_nested
        if not plain or not 1 < size <= MOST or x.dim() < weight.dim() or weight in found:
            return
        with torch.autocast(x.device.type, enabled=False):
            rows = entering(layer, x.detach().float())
            if rows is None or rows.shape[1] != weight[0].numel():
                return
            if size > FEW and 4 * float(reduce(torch.tensor(float(len(rows)), device=x.device))) < size:
                return
            if bias is not None:
                rows = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
            found[weight] = (bias, reduce(rows.mT @ rows / len(rows)), len(x))

    stems = [net.get_submodule(name) for name in execution_order(net, args, kwargs)[0]]
    layers = [m for m in stems if isinstance(m, KINDS) and getattr(m, "groups", 1) == 1]
    hooks = [m.register_forward_pre_hook(look) for m in layers]
    try:
        if hooks:
            with eval_mode(net):
                net(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def entering(layer: Any, x: Tensor) -> Tensor | None:
    """What enters an output, (places of all examples, inputs), in the order of the weight's entries; None where its
    kernel does not fit."""
    spatial = layer.weight.dim() - 2
    if not spatial:
        return x.flatten(0, -2)[:ROWS]
    reach = [d * (k - 1) + 1 for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    if layer.padding == "same":
        both = [(r - 1) // 2 + side * ((r - 1) % 2) for r in reversed(reach) for side in (0, 1)]
    else:
        both = [p for p in reversed(layer.padding) for _ in range(2)] if layer.padding != "valid" else []
    x = nn.functional.pad(x, both)
    if x.dim() != 2 + spatial or any(size < r for size, r in zip(x.shape[2:], reach, strict=True)):
        return None
    windows = zip(reach, layer.stride, layer.dilation, strict=True)
    for dim, (r, stride, dilation) in enumerate(windows, start=2):
        x = x.unfold(dim, r, stride)[..., ::dilation]
    x = x.movedim(1, 1 + spatial)  # (examples, *places, inputs, *kernel), of the same memory
    every = math.ceil((math.prod(x.shape[: 1 + spatial]) / ROWS) ** (1 / spatial))
    for dim in range(1, 1 + spatial):
        x = x[(slice(None),) * dim + (slice(None, None, every),)]
    return x.flatten(1 + spatial).flatten(0, spatial)
