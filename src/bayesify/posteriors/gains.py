"""How gains (moments/gains.py) are fitted: one pass beside passes with drawn weights."""

from typing import Any

import torch
from torch import Generator, nn

from bayesify.moments import Gains, Moments, carried
from bayesify.moments.gains import Drawn, Fitting, Running, gain
from bayesify.passes.moments import FIRST_ORDER, call_with_moments, carriers
from bayesify.posteriors.factorized import Factorized
from bayesify.weights import Call


def fitted(
    posterior: Factorized, net: nn.Module, calls: list[Call], num_draws: int, generator: Generator
) -> Gains:
    """Gains of all operations of a network in eval mode; of several calls from their summed variances."""
    drawn: Any = 0
    own: Any = 0
    for call in calls:
        seen = Drawn()
        for _ in range(num_draws):
            _draw(posterior, net, call, generator, seen.begin())
        fitting = Fitting(seen.variances())
        _run(posterior, net, call, carriers_of(posterior, fitting), posterior.forms, fitting)
        drawn, own = drawn + torch.tensor(fitting.drawn), own + torch.tensor(fitting.own)
    values = tuple(map(gain, drawn.tolist(), own.tolist()))
    return Gains(tuple(seen.names), values, num_draws)


def carriers_of(posterior: Factorized, running: Running) -> Any:
    """names -> the moments of the posterior."""
    return lambda names: carriers(posterior.distributions(names), posterior.forms, running)


def _draw(posterior: Factorized, net: nn.Module, call: Call, generator: Generator, running: Running) -> None:
    """A pass with drawn weights and no variance: the same operations in the same order, and means that are drawn."""
    weights = {name: value[0] for name, value in posterior.draw(0, 1, generator).items()}
    certain = {name: Moments(value, torch.zeros_like(value)) for name, value in weights.items()}

    def values(names: list[str]) -> Any:
        return {name: carried(certain[name], FIRST_ORDER, running, is_weight=True) for name in names}

    _run(posterior, net, call, values, FIRST_ORDER, running)


def _run(
    posterior: Factorized, net: nn.Module, call: Call, values: Any, forms: Any, running: Running
) -> None:
    call_with_moments(net, posterior.slots, values, call, posterior.guard, forms, running)
