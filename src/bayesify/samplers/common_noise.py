"""Gradient noise that coordinates have in common. No thermostat of a coordinate takes it away: a direction that has
much of it comes out too wide, and no coordinate shows it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bayesify.samplers.base import Sampler

CHANGE, DIRECTION, SUMS = "common_change", "common_direction", "common_sums"  # states
OVERLAP = 35 / 18  # Σ ρ² of second differences of independent noise: so many of them are worth one
TINY = 1e-30


class Common(NamedTuple):
    """Of one chain: B/D along the direction of most noise, and of how many independent squares that is the mean."""

    share: float = 0.0
    independent: float = 0.0


class Look(NamedTuple):
    """At one parameter."""

    state: dict[str, Tensor]
    scale: Tensor  # s
    second: Tensor  # e


class CommonNoise:
    """B/D along the direction that has most gradient noise, from the looks of a window.

    e = G_t − 2 G_{t−1} + G_{t−2} has the noise of a gradient six times, and hardly its motion, which ΔG has too. With
    s · 6 Var G = B/D of a coordinate, look by look:

        first half    u ← (1 − 1/n) u + 1/n · √s e (√s e · u) / |u|    turns towards the direction of most noise
        second half   the mean of (√s e · u)² / |u|²                  is B/D along it

    The largest of many variances is too large by chance. This one is not: what is measured had no part in u. Where
    looks are too few to find the direction it is too small. √s u and the sums lie in the sampler's own state.

    num_chains: that the parameters are stacked of, in their first dimension

    Reference: Weng, Zhang and Hwang, "Candid covariance-free incremental principal component analysis", 2003 (the rule
    of u, for one vector).
    """

    def __init__(self, num_chains: int = 1) -> None:
        self.num_chains = num_chains

    def look(
        self, sampler: Sampler, changes: Sequence[tuple[Tensor, Tensor, Tensor]], at: int, length: int
    ) -> None:
        """At the gradients before step `at`, counted from 0, of a window of `length` steps.

        changes: (parameter, its s, ΔG since the last look)
        """
        looks = []
        for p, scale, change in changes:
            state = sampler.state[p]
            if CHANGE in state:
                looks.append(Look(state, scale, change - state[CHANGE]))
            state[CHANGE] = change
        half = length // 2
        if not looks or len(looks) < len(changes) or half <= at < half + 2:  # there e has G of both halves
            return
        if at == 2:
            self._begin(looks)
        elif SUMS in looks[0].state and all(DIRECTION in each.state for each in looks):
            self._turn(looks, at - 1) if at < half else self._measure(looks)

    def _begin(self, looks: list[Look]) -> None:
        """u = √s e."""
        for state, scale, e in looks:
            state[DIRECTION] = scale * e
        # |u|², and of the second half: looks, Σ x, Σ x²
        sums = looks[0].state[SUMS] = looks[0].second.new_zeros(self.num_chains, 4)
        sums[:, 0] = self._sum(state[DIRECTION] * e for state, _, e in looks)

    def _turn(self, looks: list[Look], n: int) -> None:
        size = looks[0].state[SUMS][:, 0]
        along = self._sum(state[DIRECTION] * e for state, _, e in looks)
        square = self._sum(scale * e.square() for _, scale, e in looks)
        keep, part = 1 - 1 / n, along / (n * size.clamp_min(TINY).sqrt())
        size.mul_(keep**2).add_(2 * keep * part * along + part.square() * square)
        for state, scale, e in looks:
            each = part.view(-1, *[1] * (e.dim() - 1)) if e.dim() else part[0]
            state[DIRECTION].mul_(keep).add_(each * scale * e)

    def _measure(self, looks: list[Look]) -> None:
        along = self._sum(state[DIRECTION] * e for state, _, e in looks)
        size = self._sum(
            state[DIRECTION].square() / scale for state, scale, _ in looks
        )  # by the masses of now
        x = along.square() / size.clamp_min(TINY)
        looks[0].state[SUMS][:, 1:] += torch.stack([torch.ones_like(x), x, x.square()], 1)

    def _sum(self, parts: Iterable[Tensor]) -> Tensor:
        """Over all parameters, chain by chain."""
        return torch.stack([part.reshape(self.num_chains, -1).sum(1) for part in parts]).sum(0)

    def found(self, sampler: Sampler, parameters: Mapping[str, Tensor]) -> list[Common]:
        """Of every chain; forgets what was added up."""
        found = [Common()] * self.num_chains
        for p in parameters.values():
            state = sampler.state.get(p, {})
            if SUMS in state:
                found = [common(int(row[1]), *row[2:]) for row in state[SUMS].tolist()]
            for name in (CHANGE, DIRECTION, SUMS):
                state.pop(name, None)
        return found


def common(count: int, total: float, squares: float) -> Common:
    """The mean of `count` squares, and what it is worth: less where their tails are heavier than those of χ²."""
    if count < 2 or not total > 0:
        return Common()
    spread = squares / count / (total / count) ** 2 - 1  # of χ²: 2
    return Common(total / count, count / OVERLAP * min(2 / max(spread, TINY), 1.0))
