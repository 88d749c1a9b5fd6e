"""The gradients that a sampler's warm start looks at in `bf.fit`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.batches import first_of, for_members, inputs_of, target_of, to_device
from bayesify.engine.randomness import untouched
from bayesify.model import BayesianModule
from bayesify.samplers.axes import Moments
from bayesify.weights import as_arguments
from bayesify.weights.observing.input_moments import input_moments
from bayesify.weights.observing.origins import execution_order


def warm_up(model: BayesianModule, sampler: Any, batch: Any, fabric: Any) -> str | None:
    """Take the turn of the warm start that is due before this step, on `batch`; returns what begins with it."""
    warm = getattr(sampler, "warm", None)
    if warm is None or not warm.turns(sampler):
        return None
    batch = to_device(batch, fabric.device, next(model.parameters()).dtype)

    def gradients(parameters: Sequence[Tensor]) -> list[Tensor | None]:
        with untouched(model):
            with fabric.autocast():
                loss = model(inputs_of(batch), target=target_of(batch)).total
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
        if fabric.world_size > 1:
            return [g if g is None else fabric.all_reduce(g, reduce_op="mean") for g in found]
        return list(found)

    with untouched(model), fabric.autocast():
        data = entrances(model, warm.length * fabric.world_size, batch)
        inputs = moments(model, batch, fabric.all_reduce) if warm.watches(sampler) else {}
    warm.turn(sampler, gradients, data, inputs)
    return str(warm) if warm.enters(sampler.steps) else None


def entrances(model: BayesianModule, length: int, batch: Any) -> dict[Tensor, int]:
    """The weights that are multiplied by the data themselves, with the dimension that the inputs are in. None where
    a warm start of this length may not see every example."""
    args, kwargs = as_arguments(inputs_of(first_of(batch)))
    assert model.num_data is not None
    if length * len(target_of(first_of(batch))) < 4 * model.num_data:
        return {}
    found: dict[Tensor, int] = {}
    for net in model.posterior.nets(model.net):
        for name in execution_order(net, args, kwargs)[0]:
            layer = net.get_submodule(name)
            if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)):
                found[layer.weight] = 0 if isinstance(layer, nn.Embedding) else 1
    return found


def moments(
    model: BayesianModule, batch: Any, reduce: Callable[[Tensor], Tensor] = lambda moments: moments
) -> Moments:
    """What this batch says of the inputs of layers (see `input_moments`)."""
    nets = model.posterior.nets(model.net)
    pairs = zip(nets, for_members(inputs_of(batch), len(nets)), strict=True)
    found = [input_moments(net, *as_arguments(x), reduce) for net, x in pairs]
    return {w: layer for each in found for w, layer in each.items()}
