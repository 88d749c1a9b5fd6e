"""Watch one call of a network: the means of what enters its first layers."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.weights.observing.origins import execution_order

KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
FEWEST = 4  # examples that a mean is taken of


@torch.no_grad()
def input_means(
    net: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    reduce: Callable[[Tensor], Tensor] = lambda means: means,
) -> dict[Tensor, tuple[Tensor, Tensor]]:
    """weight -> (bias, mean of its inputs) of the layers that inputs enter; 0 for those whose mean is within their
    spread. Layers are left out where it is so for all, or where there are too few examples to tell.

    reduce: means over all processes
    """
    found: dict[Tensor, tuple[Tensor, Tensor]] = {}

    def look(layer: Any, inputs: tuple[Any, ...]) -> None:
        spatial, x = layer.weight.dim() - 2, inputs[0].detach().float()
        if x.dim() < layer.weight.dim() or len(x) < FEWEST:
            return
        x = x.movedim(-1 - spatial, -1).flatten(0, -2)  # (examples and positions, inputs)
        mean, square = reduce(torch.stack([x.mean(0), x.square().mean(0)]))
        mean = torch.where(2 * mean.square() > square, mean, 0.0)
        if mean.any():
            found.setdefault(layer.weight, (layer.bias, mean.reshape(1, -1, *[1] * spatial)))

    stems = [net.get_submodule(name) for name in execution_order(net, args, kwargs)[0]]
    layers = [m for m in stems if isinstance(m, KINDS) and m.bias is not None]
    hooks = [m.register_forward_pre_hook(look) for m in layers if getattr(m, "groups", 1) == 1]
    try:
        if hooks:
            execution_order(net, args, kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return found
