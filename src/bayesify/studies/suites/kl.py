"""How far the estimators of the KL are from it, and what they cost, against the number of draws M (paper 1)."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Generator, Tensor

from bayesify import divergences
from bayesify.divergences.graph_size import graph_size
from bayesify.divergences.support import estimators
from bayesify.families import Family
from bayesify.posteriors import Factorized
from bayesify.studies.suites.subject import Outcome, Subject, Unsuitable

DRAWS = (1, 3, 10, 30, 100, 300, 1000)
COMPARED = 100  # the M of the table
REPEATS = 20
TRUE_DRAWS = 10_000  # of the reference where the pair has no exact KL
MOST_WEIGHTS = 30_000  # in the tensor that is looked at
MOST_STORED = 3_000_000  # weights times draws in a graph that grows with the draws


def kl_suite(subject: Subject) -> Outcome:
    """Error, stored numbers and time of the KL's estimators against the number of draws, on one weight tensor.

    The largest random tensor of at most 30,000 entries, as it was trained. The error is the mean of
    |estimate − KL| in nats over 20 estimates; time and stored numbers are those of an estimate with its gradient.
    """
    posterior = _factorized(subject)
    name = _largest(posterior)
    p = posterior.priors[name]
    if p.relative:
        raise Unsuitable(
            f"suite 'kl' compares estimators of the KL to one law, and {p!r} is another for every weight"
        )

    def q() -> Family:  # a fresh one: its graph is used up by a backward pass
        return posterior.distributions([name])[name]

    size = q().shape.numel()
    available, reason = estimators(q(), p)
    names = [n for n in available if n != "exact"]
    if not names:
        raise Unsuitable(f"suite 'kl' compares Monte-Carlo estimators, and there is none here: {reason}")
    way = "exact" if "exact" in available else "repar" if "repar" in names else "stream"
    with torch.no_grad():
        true = float(divergences.kl(q(), p, way, TRUE_DRAWS, subject.generator()))
    metrics = {"kl_value": true, "num_weights": float(size)}
    arrays = {"tensor": np.array(name), "reference": np.array(way)}
    for estimator in names:
        generator = subject.generator()

        def estimate(m: int, estimator: str = estimator, generator: Generator = generator) -> Tensor:
            return divergences.kl(q(), p, estimator, m, generator)

        draws = [m for m in DRAWS if estimator != "direct" or m * size <= MOST_STORED]
        error = [_error(partial(estimate, m), true) for m in draws]
        stored = [graph_size(partial(estimate, m)) for m in draws]
        seconds = [_seconds(partial(estimate, m), subject) for m in draws]
        found = {"draws": draws, "error": error, "stored": stored, "seconds": seconds}
        arrays |= {f"{estimator}_{key}": np.array(values) for key, values in found.items()}
        if COMPARED in draws:
            metrics[f"{estimator}/kl_error"] = error[draws.index(COMPARED)]
            metrics[f"{estimator}/kl_stored"] = float(stored[draws.index(COMPARED)])
    return Outcome(metrics, arrays)


def _factorized(subject: Subject) -> Factorized:
    posterior = subject.module.posterior
    if not isinstance(posterior, Factorized):
        raise Unsuitable(
            f"suite 'kl' is for methods with a family and a prior for each weight; this run is by method "
            f"{subject.module.method.name!r}: use it on mc_vi or vdp"
        )
    return posterior


def _largest(posterior: Factorized) -> str:
    """The largest tensor that is small enough, else the smallest."""
    sizes = {name: slots[0].get().numel() for name, slots in posterior.slots.items()}
    fitting = {name: size for name, size in sizes.items() if size <= MOST_WEIGHTS}
    return max(fitting, key=fitting.__getitem__) if fitting else min(sizes, key=sizes.__getitem__)


@torch.no_grad()
def _error(estimate: Callable[[], Tensor], true: float) -> float:
    estimates = torch.stack([estimate() for _ in range(REPEATS)]).double()
    return float((estimates - true).abs().mean())


def _seconds(estimate: Callable[[], Tensor], subject: Subject) -> float:
    """The best of three estimates with their gradients."""
    parameters = [p for p in subject.module.parameters() if p.requires_grad]
    times = []
    for _ in range(3):
        start = time.perf_counter()
        gradients = torch.autograd.grad(estimate(), parameters, allow_unused=True)
        next(g for g in gradients if g is not None).sum().item()  # waits for the device
        times.append(time.perf_counter() - start)
    return min(times)
