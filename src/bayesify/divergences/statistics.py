"""The means of statistics t(ξ) that fill a tuple: expectations, draws, or given noise. None of them has a gradient."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from bayesify import laws
from bayesify.divergences.parameterization import Parameterization, coordinates
from bayesify.execution import compiling, inside_functorch
from bayesify.families.base import Family
from bayesify.kernels import noise_sums
from bayesify.laws.features import Feature, absolute, power

Means = dict[Feature, Tensor | float]

CHUNK = {"cpu": 2**20, "cuda": 2**25}  # numbers of noise held at once: fits a cache, fills a GPU
#: laws whose Σξ and Σξ² a kernel makes, without the noise in memory
FUSED: tuple[type[laws.Law], ...] = (laws.Laplace, laws.Logistic, laws.Horseshoe, laws.Radial)
UNROLLED = 32  # chunks of a compiled loop, which the compiler writes out


class Draws(NamedTuple):
    """What a Monte-Carlo estimator is to average over: M draws, or the noise (M, *shape) itself."""

    num: int
    generator: Generator | None = None
    noise: Tensor | None = None


def expected(q: Family, features: Sequence[Feature]) -> Means | None:
    """E t(ξ) of each, or None where one has no closed form; an infinite one is inf."""
    found = {feature: q.expectation(feature) for feature in features}
    means: Means = {feature: mean for feature, mean in found.items() if mean is not None}
    return means if len(means) == len(found) else None


def drawn(q: Family, tuple_: Parameterization, draws: Draws) -> Means:
    """Means over the draws of every statistic of a tuple.

    One joint draw at a cost that does not depend on M where the family knows one. There a statistic that meets no
    gradient is replaced by its expectation; else all are summed over the draws, chunk by chunk.
    """
    with torch.no_grad():
        if draws.noise is not None:
            return {t: t(draws.noise).mean(0) for t in [*tuple_.statistics, *tuple_.free_statistics]}
        free = expected(q, tuple_.free_statistics)
        if free is None or any(isinstance(mean, float) and math.isinf(mean) for mean in free.values()):
            return _accumulated(q, [*tuple_.statistics, *tuple_.free_statistics], draws)
        if not tuple_.statistics:
            return free
        sums = q.sums(tuple_.statistics, draws.num, draws.generator)
        if sums is None:
            return {**_accumulated(q, tuple_.statistics, draws), **free}
        return {**{t: s / draws.num for t, s in zip(tuple_.statistics, sums, strict=True)}, **free}


def _accumulated(q: Family, features: Sequence[Feature], draws: Draws) -> Means:
    """Means over M draws with memory that does not depend on M."""
    squares = all(f in (power(1), power(2), absolute(2)) for f in features)
    if type(q.law) in FUSED and squares and not inside_functorch():
        name = type(q.law).__name__.lower()
        first, second = noise_sums(name, coordinates(q)[0].detach(), draws.num, draws.generator)
        return {f: (first if f == power(1) else second) / draws.num for f in features}
    totals: list[Tensor] = []
    for noise in chunks(q, draws):
        sums = [feature(noise).sum(0) for feature in features]
        totals = [a.add_(b) for a, b in zip(totals, sums, strict=True)] if totals else sums
    return {feature: total / draws.num for feature, total in zip(features, totals, strict=True)}


def chunks(q: Family, draws: Draws) -> Iterator[Tensor]:
    """Noise of all draws, (m, *shape) at a time: parts of the given noise, or fresh."""
    size = chunk_size(q.shape.numel(), draws.num, coordinates(q)[0].device.type)
    for start in range(0, draws.num, size):
        count = min(size, draws.num - start)
        if draws.noise is None:
            yield q.noise((count,), draws.generator)
        else:
            yield draws.noise[start : start + count]


def chunk_size(numel: int, num_draws: int, device: str) -> int:
    """How many draws of `numel` numbers are held at once."""
    size = max(1, CHUNK.get(device, CHUNK["cuda"]) // max(numel, 1))
    return max(size, -(-num_draws // UNROLLED)) if compiling() else size
