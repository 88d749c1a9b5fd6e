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
from bayesify.samplers.check import is_stationary
from bayesify.samplers.convergence import ess, rhat, worth
from bayesify.samplers.findings import FEWEST, SamplingWarning, chance, drift

#: what `on_bad_sampling` takes, and what Python's filter of warnings calls it
ACTIONS = {"warn": "default", "raise": "error", "ignore": "ignore"}
SHORTEST = 200  # steps after the burn-in; below, not even temperatures can be told
AT_THE_END = ("short", "clipped", "frozen", "apart", "slow", "drift")  # kinds that are found here
CLIPPED = 0.3  # of all steps: more than the descent has
APART = 1.2  # R-hat of several chains; 4 chains worth 20 independent draws each are above it once in 1,000
SETTLED = (
    10.0  # independent draws of a chain · (R-hat² − 1), which is 2 where chains go round one mode slowly
)
SLOW = 4.0  # independent draws that one chain is worth; 20 that are independent seem to be less once in 4,000
SHARE = 0.1  # of the variance of predictions, which differences between inputs must have to count
BETWEEN = " in their differences between inputs"
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
) -> None:
    """Is the run long enough, do the chains agree in what they say of `x`, and have weights and loss settled? Says so
    and remembers it where not; what an earlier and shorter run had found of this kind is forgotten.

    rows:    of the run's history, with the step at the end of every epoch and its mean loss
    clipped: steps whose gradients were shortened
    past:    steps after the first kept draw; None: by the chain's own count
    """
    parts = list(model.posterior.posteriors) if isinstance(model.posterior, Members) else [model.posterior]
    chains = [part for part in parts if isinstance(part, Chain)]
    if not chains or len(chains) < len(parts) or not is_stationary(sampler):
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
    few = f"{draws} draws are too few to tell whether the chain samples the posterior: keep at least {FEWEST}"
    short = (
        f"the chain is too short to tell whether it samples the posterior ({max(past, 0):.0f} steps after the "
        f"burn-in, {draws} draws): take at least {SHORTEST} steps and {FEWEST} draws; thousands of steps are usual"
    )
    return {"short": f"{few} (num_kept, or every)" if past >= SHORTEST else short}


def predicted(model: BayesianModule, x: Any) -> Tensor:
    """What every stored draw predicts: (chains, draws, outputs). Of classes the probabilities: a shift of all logits
    says nothing, and takes long to go round."""
    likelihood = model.likelihood
    if likelihood.task == "classification" or likelihood.takes_heads:
        return function_values(model, x, lambda output: likelihood.summarize(output)[0])
    return function_values(model, x)


def spread_out(x: Any) -> Tensor | None:
    """Inputs away from `x`: every feature shuffled over the examples, and twice as far from its mean. Directions of
    the weights that correlated features leave open show there alone. None where `x` is not one tensor of floats."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() < 2 or len(x) < FEWEST_INPUTS:
        return None
    x = x[:MOST_INPUTS]
    order = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)).argsort(0)
    mean = x.mean(0)
    return mean + 2 * (x.gather(0, order.to(x.device)) - mean)


def compare(values: Tensor, where: str = "") -> dict[str, str]:
    """Are the chains one, is one chain long enough? values: (chains, draws, outputs), `where` they are from."""
    count, draws = values.shape[:2]
    if draws < FEWEST:
        return {}
    if not values.isfinite().all() or not (values != values[:1, :1]).any():
        how = "the same in all draws" if values.isfinite().all() else "not finite"
        return {
            "frozen": f"predictions{where} are {how}, as those of no posterior are: the chain ran away from it, or "
            f"stands still. Start from weights that are trained already, or use larger batches or a smaller step (lr)"
        }
    advice = f"predictions{where} would be others after a longer run. Lengthen burn-in and run"
    if count == 1:
        size = worth(values[0])
        if not size < SLOW:
            return {}
        return {
            "slow": f"predictions{where} change slowly from draw to draw: the {draws} draws are worth some "
            f"{max(size, 1):.0f} independent ones, too few for the posterior, and {advice}, or run several chains "
            f"(bf.sample_chains)"
        }
    spread = float(rhat(values, pooled=True))
    beyond_chance = draws // 2 * (spread**2 - 1) + 1 > chance(2 * count - 1, 4)
    if not spread > APART or not beyond_chance:
        return {}
    disagree = (
        f"the {count} chains do not agree in their predictions{where} (R-hat {spread:.2f}, should be near 1)"
    )
    each = torch.tensor([worth(chain) for chain in values]).median().item()
    if each * (spread**2 - 1) > SETTLED:
        return {
            "apart": f"{disagree}, though each is worth some {each:.0f} independent draws by itself: they sit in "
            f"different modes, from one to another of which no longer run may come. All of them together are the best "
            f"guess; more chains make a better one"
        }
    size = max(1.0, float(ess(values).nanmedian()))
    return {
        "apart": f"{disagree}: the {count * draws} draws are worth some {size:.0f} independent ones, and {advice}"
    }


def judge(values: Tensor, where: str = "") -> dict[str, str]:
    """`compare`, and the same of their differences from the mean over all inputs. That goes round by itself where
    features have a mean, and would hide that nothing else does."""
    apart = values - values.mean(-1, keepdim=True)
    share = apart.var(1).sum() / values.var(1).sum()
    return compare(values, where) or (compare(apart, f"{where}{BETWEEN}") if share > SHARE else {})


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
