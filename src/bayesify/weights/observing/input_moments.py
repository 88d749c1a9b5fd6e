"""Watch one call of a network: the second moments of what enters its layers."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.weights.observing.origins import eval_mode

KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
FEW, MOST = (
    256,
    1024,
)  # inputs of an output: what is always looked at, and only where rows are as many as that
ROWS = 2**14  # most that are looked at


@torch.no_grad()
def input_moments(
    net: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    reduce: Callable[[Tensor], Tensor] = lambda moments: moments,
) -> dict[Tensor, tuple[Tensor | None, Tensor, int]]:
    """weight -> (bias, E x̃ x̃ᵀ of the inputs of an output, examples that is a mean of), x̃ = (x, 1) with a bias, of
    layers with so few inputs that to go along their axes is not much dearer than the layer itself.

    reduce: means over all processes
    """
    found: dict[Tensor, tuple[Tensor | None, Tensor, int]] = {}

    def look(layer: Any, inputs: tuple[Any, ...]) -> None:
        x, size = inputs[0].detach().float(), layer.weight[0].numel() + (layer.bias is not None)
        if x.dim() < layer.weight.dim() or layer.weight in found:
            return
        rows = entering(layer, x)
        if size > max(FEW, min(MOST, 4 * len(rows))):
            return
        if layer.bias is not None:
            rows = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
        found[layer.weight] = (layer.bias, reduce(rows.mT @ rows / len(rows)), len(x))

    layers = [m for m in net.modules() if isinstance(m, KINDS) and getattr(m, "groups", 1) == 1]
    hooks = [
        m.register_forward_pre_hook(look) for m in layers if m.weight[0].numel() > 1 or m.bias is not None
    ]
    try:
        if hooks:
            with eval_mode(net):
                net(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def entering(layer: Any, x: Tensor) -> Tensor:
    """What enters an output, (places of all examples, inputs), in the order of the weight's entries."""
    spatial = layer.weight.dim() - 2
    if not spatial:
        return x.flatten(0, -2)[:ROWS]
    if not isinstance(layer.padding, str):
        x = nn.functional.pad(x, [p for p in reversed(layer.padding) for _ in range(2)])
    steps = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    for dim, (size, stride, dilation) in enumerate(steps, start=2):
        x = x.unfold(dim, dilation * (size - 1) + 1, stride)[..., ::dilation]
    x = x.movedim(1, 1 + spatial)  # (examples, *places, inputs, *kernel)
    rows = x.flatten(1 + spatial).flatten(0, spatial)
    return rows[:: max(1, len(rows) // ROWS)]
