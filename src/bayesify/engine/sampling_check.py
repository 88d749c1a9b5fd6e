"""What a run does about a sampler that does not sample, and the check of its draws at the end."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from bayesify.evaluation.convergence import function_values
from bayesify.model import BayesianModule
from bayesify.posteriors import Chain, Members
from bayesify.posteriors.chain.stored_draws import StoredDraws
from bayesify.samplers.agreement import judge
from bayesify.samplers.check import is_stationary
from bayesify.samplers.findings import FEWEST, SamplingWarning, drift

#: what `on_bad_sampling` takes, and what Python's filter of warnings calls it
ACTIONS = {"warn": "default", "raise": "error", "ignore": "ignore"}
SHORTEST = 200  # steps after the burn-in; below, not even temperatures can be told
AT_THE_END = ("short", "clipped", "frozen", "apart", "few", "drift")  # kinds that are found here
CLIPPED = 0.3  # of all steps: more than the descent has
AWAY = " away from the training inputs"
FEWEST_INPUTS, MOST_INPUTS = 4, 64  # that are shuffled


@contextmanager
def acting(on_bad_sampling: str, first: bool = True) -> Iterator[None]:
    """Inside, a `SamplingWarning` is shown, raised or not heard; other processes than the first do not repeat it."""
    action = "ignore" if on_bad_sampling == "warn" and not first else ACTIONS[on_bad_sampling]
    if on_bad_sampling == "warn" and first:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter(action, SamplingWarning)  # type: ignore[arg-type]
        yield


def check_draws(
    model: BayesianModule,
    sampler: Any,
    x: Any,
    rows: Sequence[Mapping[str, Any]] = (),
    clipped: int = 0,
    past: float | None = None,
    steady: bool = True,
) -> None:
    """Was a draw kept, is the run long enough, do the chains agree in what they say of `x`, have weights and loss
    settled? Says so and remembers it where not; what an earlier and shorter run had found of this kind is forgotten.

    rows:    of the run's history, with the step at the end of every epoch and its mean loss
    clipped: steps whose gradients were shortened
    past:    steps after the first kept draw; None: by the chain's own count
    steady:  no schedule moves the step size
    """
    parts = list(model.posterior.posteriors) if isinstance(model.posterior, Members) else [model.posterior]
    chains = [part for part in parts if isinstance(part, Chain)]
    if not chains or len(chains) < len(parts):
        return
    if any(len(part.store) for part in chains) and not (steady and is_stationary(sampler)):
        return
    first = chains[0]
    past = first.steps - first.start - first.watch.first if past is None else past
    found: dict[str, str] = {}
    if clipped > CLIPPED * max(first.steps - first.start, 1):
        found["clipped"] = (
            f"clip_norm shortened the gradients of {clipped} steps, which are then those of another posterior, a "
            f"wider one: leave it out, or give a larger one that only the descent meets"
        )
    if all(isinstance(part.store, StoredDraws) and len(part.store) >= FEWEST for part in chains):
        found |= judge(predicted(model, x)) or _beyond(model, x)
        found |= drift(log_priors(chains), "log prior")
    kept = [
        b["loss"] for a, b in pairwise(rows) if a["step"] >= first.watch.first
    ]  # epochs after the burn-in
    if len(kept) >= FEWEST:
        found |= drift(torch.tensor([kept], dtype=torch.float64), "loss")
    found = found or _length(first, past)
    for part in chains:
        part.unjudged = False
    for kind in AT_THE_END:
        first.findings.pop(kind, None)
    first.report(found)


def _length(chain: Chain, past: float) -> dict[str, str]:
    """past: steps after the first kept draw."""
    store = chain.store
    draws = len(store) // max(store.num_chains, 1)
    if past >= SHORTEST and (not isinstance(store, StoredDraws) or draws >= FEWEST):
        return {}
    if not draws:
        return {
            "short": "no draw was kept, and predictions are those of the last weights, a point: make the run longer "
            "than burn-in and first cycle, or give the method shorter ones (burn_in, every, cycle)"
        }
    few = f"{draws} draws are too few to tell whether the chain samples the posterior: keep at least {FEWEST}"
    short = (
        f"the chain is too short to tell whether it samples the posterior ({max(past, 0):.0f} steps after the "
        f"burn-in, {draws} draws): take at least {SHORTEST} steps and {FEWEST} draws; thousands of steps are usual"
    )
    return {"short": f"{few} (num_kept, or every)" if past >= SHORTEST else short}


def predicted(model: BayesianModule, x: Any) -> Tensor:
    """What every stored draw predicts: (chains, draws, outputs)."""
    return function_values(model, x, model.likelihood.compared)


def spread_out(x: Any) -> Tensor | None:
    """Inputs away from `x`: every feature shuffled over the examples, and twice as far from its mean. Directions of
    the weights that correlated features leave open show there alone. None where `x` is not one tensor of floats."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() < 2 or len(x) < FEWEST_INPUTS:
        return None
    x = x[:MOST_INPUTS]
    order = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)).argsort(0)
    mean = x.mean(0)
    return mean + 2 * (x.gather(0, order.to(x.device)) - mean)


def _beyond(model: BayesianModule, x: Any) -> dict[str, str]:
    """The same away from the training inputs."""
    try:
        away = spread_out(x)
        return {} if away is None else judge(predicted(model, away), AWAY)
    except Exception:  # a network may refuse inputs that no data has
        return {}


def log_priors(parts: Sequence[Chain]) -> Tensor:
    """Of every stored draw: (chains, draws), chains cut to equal length."""
    series = [values for part in parts for values in part.log_priors()]
    length = min(map(len, series))
    return torch.tensor([values[-length:] for values in series], dtype=torch.float64)
