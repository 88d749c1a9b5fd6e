"""Weight-normalised layers, W = g v/‖v‖, under dropout: the weights are dropped, not the direction alone."""

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from bayesify import torch_internals as internals

#: how directions and scales are called: in ResNet++, by torch's former weight_norm and by its present one
PAIRS = {"direction": "scale", "weight_v": "weight_g", "original1": "original0"}


def scales_of(net: nn.Module) -> dict[str, str]:
    """direction -> scale, by name, of all weight-normalised layers of `net`."""
    names = {name for name, _ in net.named_parameters(remove_duplicate=False)}
    found = {}
    for name in names:
        layer, dot, last = name.rpartition(".")
        scale = f"{layer}{dot}{PAIRS.get(last, '')}"
        if scale in names and _normalises(net.get_submodule(layer), last):
            found[name] = scale
    return found


def _normalises(module: nn.Module, direction: str) -> bool:
    if direction == "original1":
        return isinstance(module, ParametrizationList) and isinstance(module[0], internals.WeightNorm)
    return direction == "weight_v" or any(kind.__name__ == "WeightNorm" for kind in type(module).__mro__)


def rescaled(drawn: Tensor, v: Tensor, g: Tensor, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Direction and scale whose weight is g v′/‖v‖ for the drawn direction v′, (*shape of v) or (n, *shape of v):

    g′ = g ‖v′‖/‖v‖, where the layer itself divides by ‖v′‖. Where all of v′ is dropped g′ = 0, and the direction stays
    v: 0/0 is none. `shape` is that of the scale; it has 1, or nothing, for the axes over which ‖·‖ goes.
    """
    # from the end, behind n
    axes = tuple([axis - v.dim() for axis in range(v.dim()) if axis >= len(shape) or shape[axis] == 1])
    length = torch.linalg.vector_norm(drawn, dim=axes, keepdim=True)
    factor = length / torch.linalg.vector_norm(v, dim=axes, keepdim=True)
    lead = drawn.shape[: drawn.dim() - v.dim()]
    return torch.where(length == 0, v, drawn), g * factor.reshape((*lead, *shape))
