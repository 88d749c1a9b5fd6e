"""Starting values of the components beside the network's own parameters.

Equal components separate only through the noise of mini-batches, so they start apart.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.families.location_scale import root_mean_square
from bayesify.weights import Selection, Slot
from bayesify.weights.where import kind_of

INITS = ("copies", "fresh")


def start_components(
    selection: Selection, num_others: int, init: str, spread: float, gamma: float | None
) -> dict[str, Tensor]:
    """(num_others, *shape) for every selected tensor.

    init:    "copies": M_k = M_1 + spread · rms(M_1) · ε, ε ~ N(0, 1);
             "fresh": by the layer's own reset_parameters, norm scales from U(0, 1) (torch's default when the paper
             was written); where a layer has none, copies
    gamma:   the value every norm scale starts from, the network's own included (paper 2's regressions: 0.2)
    """
    starts = {}
    for name, slots in selection.slots.items():
        module, centre = slots[0].module, slots[0].get()
        scale = kind_of(module) == "norm" and "bias" not in name.rpartition(".")[2]
        if scale and gamma is not None:
            with torch.no_grad():
                centre.fill_(gamma)
        if num_others == 0:
            continue
        fresh = [_fresh(slots[0]) for _ in range(num_others)] if init == "fresh" else [None]
        if scale and init == "fresh" and gamma is None:
            starts[name] = torch.rand(num_others, *centre.shape).to(centre)
        elif scale or fresh[0] is None:
            starts[name] = _copies(centre.detach(), num_others, spread)
        else:
            starts[name] = torch.stack([value for value in fresh if value is not None])
    return starts


def _copies(centre: Tensor, n: int, spread: float) -> Tensor:
    noise = torch.randn(n, *centre.shape, dtype=centre.dtype).to(centre.device)
    return centre + spread * root_mean_square(centre) * noise


def _fresh(slot: Slot) -> Tensor | None:
    """One new value of a parameter by its layer's own initialisation; None where the layer has none."""
    module: Any = copy.deepcopy(slot.module)
    reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
    if not callable(reset):
        return None
    reset()
    value = module._parameters[slot.key]
    assert isinstance(value, nn.Parameter)
    return value.detach()
