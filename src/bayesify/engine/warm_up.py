"""The gradients that a sampler's warm start looks at in `bf.fit`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.batches import inputs_of, target_of, to_device
from bayesify.engine.randomness import untouched
from bayesify.model import BayesianModule
from bayesify.weights import as_arguments
from bayesify.weights.observing.origins import execution_order

FEWEST = 4  # examples of a batch that a mean of inputs is taken of


def warm_up(model: BayesianModule, sampler: Any, batch: Any, fabric: Any) -> str | None:
    """Take the turn of the warm start that is due before this step, on `batch`; returns what begins with it."""
    warm = getattr(sampler, "warm", None)
    if warm is None or not warm.turns(sampler):
        return None
    batch = to_device(batch, fabric.device)

    def gradients(parameters: Sequence[Tensor]) -> list[Tensor | None]:
        with untouched(model):
            with fabric.autocast():
                loss = model(inputs_of(batch), target=target_of(batch)).total
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
        if fabric.world_size > 1:
            return [g if g is None else fabric.all_reduce(g, reduce_op="mean") for g in found]
        return list(found)

    with fabric.autocast():
        inputs = entrances(model, warm.length * fabric.world_size, batch)
        means = centres(model, batch, fabric.all_reduce) if warm.begins(sampler) else {}
    warm.turn(sampler, gradients, inputs, means)
    return str(warm) if warm.enters(sampler.steps) else None


def entrances(model: BayesianModule, length: int, batch: Any) -> dict[Tensor, int]:
    """The weights that are multiplied by the data themselves, with the dimension that the inputs are in. None where
    a warm start of this length may not see every example."""
    args, kwargs = as_arguments(inputs_of(batch))
    assert model.num_data is not None
    if length * len(target_of(batch)) < 4 * model.num_data:
        return {}
    found: dict[Tensor, int] = {}
    for net in model.posterior.nets(model.net):
        for name in execution_order(net, args, kwargs)[0]:
            layer = net.get_submodule(name)
            if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)):
                found[layer.weight] = 0 if isinstance(layer, nn.Embedding) else 1
    return found


@torch.no_grad()
def centres(
    model: BayesianModule, batch: Any, reduce: Callable[[Tensor], Tensor] = lambda sums: sums
) -> dict[Tensor, tuple[Tensor, Tensor]]:
    """weight -> (bias, mean of its inputs) of the layers that the data enter; 0 for inputs whose mean is within their
    spread, and none where a batch has too few examples to tell. reduce: means over all processes"""
    args, kwargs = as_arguments(inputs_of(batch))
    found: dict[Tensor, tuple[Tensor, Tensor]] = {}

    def look(layer: Any, inputs: tuple[Any, ...]) -> None:
        spatial = layer.weight.dim() - 2
        x = inputs[0].detach().float().movedim(-1 - spatial, -1).flatten(0, -2)  # (.., inputs)
        mean, square = reduce(torch.stack([x.mean(0), x.square().mean(0)]))
        mean = torch.where(2 * mean.square() > square, mean, 0.0)
        if mean.any():
            found.setdefault(layer.weight, (layer.bias, mean.reshape(1, -1, *[1] * spatial)))

    for net in model.posterior.nets(model.net) if len(target_of(batch)) >= FEWEST else ():
        stems = [net.get_submodule(name) for name in execution_order(net, args, kwargs)[0]]
        kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
        layers = [m for m in stems if isinstance(m, kinds) and m.bias is not None]
        hooks = [m.register_forward_pre_hook(look) for m in layers if getattr(m, "groups", 1) == 1]
        try:
            execution_order(net, args, kwargs)
        finally:
            for hook in hooks:
                hook.remove()
    return found
