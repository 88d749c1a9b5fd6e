"""What `bf.moments.fit_gains` does: inputs from a loader, and gains for every member."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from bayesify.batches import first_examples, inputs_for
from bayesify.checks import check_whole
from bayesify.moments import Gains, Moments, replace
from bayesify.moments.sweep import finished
from bayesify.moments.values import mean_of
from bayesify.posteriors import Factorized, Members
from bayesify.posteriors.gains import fitted
from bayesify.predict.prediction import evaluating
from bayesify.weights import Call, as_call


def fit_gains(
    model: Any, loader: Iterable[Any] | None, num_draws: int, num_examples: int, seed: int
) -> dict[str, float] | None:
    """Gains of every member, kept by its posterior; None in place of the loader takes them back."""
    check_whole(num_draws, "num_draws", 2)
    check_whole(num_examples, "num_examples", 1)
    posterior = model.posterior
    members = [*posterior.posteriors] if isinstance(posterior, Members) else [posterior]
    found: list[Gains | None] = [None] * len(members)
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    with model._locked(), evaluating(model), torch.no_grad():
        if loader is not None:
            calls = _calls(model, loader, num_examples)
            _check(model, calls[0], members[0])
            pairs = zip(members, posterior.nets(model.net), strict=True)
            found = [fitted(member, net, calls, num_draws, generator) for member, net in pairs]
        for member, gains in zip(members, found, strict=True):
            member.gains = gains
    return None if found[0] is None else by_name(found[0])


def by_name(gains: Gains) -> dict[str, float]:
    """Gains by operation; of several in a module, or several calls of it, the later ones have a number."""
    count: Counter[str] = Counter()
    named = {}
    for name, value in zip(gains.names, gains.values, strict=True):
        count[name] += 1
        named[name if count[name] == 1 else f"{name}, number {count[name]}"] = value
    return named


def _calls(model: Any, loader: Iterable[Any], most: int) -> list[Call]:
    """The first examples of the loader; inputs with a variance count by their means."""
    calls: list[Call] = []
    for batch in [loader] if isinstance(loader, Tensor | Mapping) else loader:
        inputs, size = first_examples(replace(inputs_for(model, batch), Moments, mean_of), most)
        calls.append(as_call(inputs))
        most -= size
        if most <= 0:
            break
    if not calls:
        raise ValueError("the loader is empty: there is nothing to fit gains to")
    return calls


def _check(model: Any, call: Call, posterior: Factorized) -> None:
    """Gains are for variances that no covariance stands behind."""
    if "full" in posterior.forms:
        raise ValueError(
            "covariance='full' carries covariances, which need no gains: they are for "
            "bf.DensityPropagation(covariance='diagonal')"
        )
    if not posterior.swept:
        return
    output = finished(model.pick(model.posterior.run(model.net, call)))
    heads = output if type(output) in (tuple, list) else [output]
    if all(isinstance(head, Moments) and head.cov is not None for head in heads):
        raise ValueError(
            "covariance='outputs' finds the covariance of these outputs, which needs no gains and is better: they are "
            "for bf.DensityPropagation(covariance='diagonal'), and for outputs too many for it"
        )
