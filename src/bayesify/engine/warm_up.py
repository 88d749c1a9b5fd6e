"""The gradients that a sampler's warm start looks at in `bf.fit`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bayesify.batches import inputs_of, target_of, to_device
from bayesify.engine.randomness import untouched
from bayesify.model import BayesianModule


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

    warm.turn(sampler, gradients)
    return str(warm) if warm.enters(sampler.steps) else None
