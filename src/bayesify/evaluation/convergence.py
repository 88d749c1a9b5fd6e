"""What a network says for every draw of its chains, of which R-hat and effective sample size are taken."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesify.batches import beside
from bayesify.posteriors import Chain, Members
from bayesify.predict.prediction import evaluating
from bayesify.weights import as_call


def function_values(model: Any, x: Any, of: Callable[[Any], Tensor] | None = None) -> Tensor:
    """What the network says at `x` for every stored draw: (chains, draws, outputs), chains cut to equal length.

    R-hat and ESS are taken of these: weights of a network are not identified, its function is.
    of: what to take of an output; None: the output as it is
    """
    posterior = model.posterior
    members = list(posterior.posteriors) if isinstance(posterior, Members) else [posterior]
    call = as_call(beside(model, x))
    chains: dict[tuple[int, int], list[Tensor]] = {}
    with torch.no_grad(), model._locked(), evaluating(model):
        for index, chain in enumerate(members):
            if not isinstance(chain, Chain):
                raise TypeError(f"{model.method.name} keeps no chain of draws: use bf.ThermostatMCMC()")
            for key, weights in chain.each():
                output = model.pick(posterior.run_draw(model.net, call, weights, index))
                taken = output if of is None else of(output)
                chains.setdefault((index, key.chain), []).append(taken.flatten().cpu())
    if not chains:
        raise RuntimeError("the chain has no draws yet")
    length = min(map(len, chains.values()))
    return torch.stack([torch.stack(values[-length:]) for values in chains.values()])
