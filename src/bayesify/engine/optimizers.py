"""Optimisers by name, over what of a model trains."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from bayesify.model import BayesianModule
from bayesify.posteriors import Components, Factorized

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


#: where nobody gives one
USUAL_LR = {"sgd": 0.1, "adam": 1e-3, "adamw": 1e-3}


def named_optimizer(
    model: BayesianModule, name: str, lr: float | None, momentum: float | None, weight_decay: float | None
) -> torch.optim.Optimizer:
    """The optimiser of this name, SGD with Nesterov's momentum. What a KL holds has no weight decay."""
    if name != "sgd" and momentum is not None:
        raise ValueError(f"momentum={momentum!r} is of optimizer='sgd', not of {name!r}: leave it out")
    more: dict[str, Any] = {"momentum": momentum, "nesterov": True} if momentum else {}
    trained = [p for p in model.parameters() if p.requires_grad]
    held = {id(p) for p in _held(model)}
    groups = [
        {"params": [p for p in trained if id(p) not in held], "weight_decay": weight_decay or 0.0},
        {"params": [p for p in trained if id(p) in held], "weight_decay": 0.0},
    ]
    if trained and all(p.is_cuda for p in trained):
        more["fused"] = True
    lr = USUAL_LR[name] if lr is None else lr
    return OPTIMIZERS[name]([group for group in groups if group["params"]], lr=lr, **more)


def _held(model: BayesianModule) -> Iterator[Tensor]:
    """Parameters that have a prior, and those that are no weights: widths, probabilities, noise."""
    yield from model.likelihood.parameters()
    for part in model.posterior.modules():
        if isinstance(part, Components):
            yield from part.mixing.parameters()
            yield from part.log_std.parameters()
        elif isinstance(part, Factorized):
            yield from part.parameters()
            yield from (slots[0].get() for slots in part.slots.values())
