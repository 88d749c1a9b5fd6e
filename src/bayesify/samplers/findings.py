"""What the looks at a sampler mean, in words.

    stuck    ξ > 3 max(D, h V / 2 m T) in 1 % of the weights: a thermostat that wound up far from the posterior falls
             by no more than κ h T a step, and its weight hardly moves until it is down
    cold     kinetic temperature below 0.3, of some parameter
    hot      kinetic temperature above 1.5, of some parameter
    noisy    gradient noise is more than 0.5 of D where there is a thermostat, or adds more than 0.5 to the variance
             where there is neither it nor a momentum, whose temperature says more, in 10 % of the weights
    slow     1 % of the weights forget where they were fewer than 5 times while draws are kept, so that their variance
             is below 0.7 of what it should be; told of those on which nothing acts but a curvature of their own, as a
             prior's where the data say nothing
    common   more than half as much gradient noise as is injected along one direction, where no thermostat takes it
             away: a remark without a warning, because predictions hardly change

A temperature must also be beyond what chance does to a mean of so many looks. Chains that are cold on purpose, or
whose step has cycles, are not stationary: of them the thermostats are looked at alone.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from bayesify.samplers.common_noise import Common
from bayesify.samplers.convergence import rhat

STUCK, STUCK_SHARE = 3.0, 0.01
COLD, HOT = 0.3, 1.5
NOISY, NOISY_SHARE = (
    0.5,
    0.1,
)  # at half of D correlated noise makes variances some 15 % too small, at 1.7 D 50 %
COMMON = 0.5  # B/D along a direction
REMARKS = {"common"}  # kinds that no prediction is warned of
ROUNDS, SLOW_SHARE = 5.0, 0.01
SIGMAS = 4.0
FEWEST = 20  # draws of a chain, or epochs, that are enough to judge by
DRIFTED = (
    2.2  # of the ranks in one chain; one worth 10 draws is above it once in 1,000, a steady drift is at 2.5
)


class SamplingWarning(UserWarning):
    """The draws of a sampler are not those of the posterior, and neither are predictions. The message says in how many
    weights, what it does to predictions and what helps."""


class Seen(NamedTuple):
    """What the looks of a window say of one parameter of one chain."""

    name: str
    numel: int
    stuck: int = 0  # thermostats that are
    wait: float = 0.0  # steps in which the highest of them could be down
    kinetic: float = math.nan  # E p K′(p) / T
    independent: float = 0.0  # how many independent values that is a mean of
    noisy: int = 0  # weights with too much gradient noise
    noise: float = 0.0  # its mean there, as a share of D or an excess of variance
    slow: int = 0  # weights that the run is too short for, though only the prior acts on them
    round: float = 0.0  # steps in which the slowest of them forgets where it was


def findings(rows: Sequence[Seen], thermostat: bool, stationary: bool = True) -> dict[str, str]:
    """What is wrong, in words by their kind; nothing where nothing is."""
    total = sum(row.numel for row in rows)
    stuck, noisy, slow = ([row for row in rows if getattr(row, kind)] for kind in ("stuck", "noisy", "slow"))
    found: dict[str, str] = {}
    if sum(row.stuck for row in stuck) >= max(1, STUCK_SHARE * total):
        found["stuck"] = (
            f"the thermostats of {_counted(stuck, 'stuck', total)} stand far above what the noise of the gradients "
            f"asks for, so that these weights hardly move: their draws are too alike, and predictions too sure. "
            f"Lengthen the burn-in by some {max(row.wait for row in stuck):,.0f} steps, in which they come down, or "
            f"start from weights that are trained already"
        )
    if not stationary:
        return found
    cold = [row for row in rows if row.kinetic < min(COLD, chance(row.independent, -SIGMAS))]
    hot = [row for row in rows if row.kinetic > max(HOT, chance(row.independent, SIGMAS))]
    if cold and not found:
        found["cold"] = (
            f"{_temperature(cold, min)}: they move too little, and predictions are too sure. Lengthen the burn-in"
            f"{', or raise thermostat_rate' * thermostat}"
        )
    if hot:
        other = "" if thermostat else ", take a sampler with a thermostat (sampler='atmc')"
        found["hot"] = (
            f"{_temperature(hot, max)}: their draws spread too far, and predictions are too unsure. Lower the step "
            f"size (lr), raise the mass{other}, or use larger batches"
        )
    if sum(row.noisy for row in noisy) >= max(1, NOISY_SHARE * total):
        found["noisy"] = _noise(noisy, total, thermostat)
    if sum(row.slow for row in slow) >= max(1, SLOW_SHARE * total):
        steps = max(row.round for row in slow)
        found["slow"] = (
            f"{_counted(slow, 'slow', total)} hardly move: they need {steps:,.0f} steps to forget where they were, as "
            f"weights do of which the data say nothing (inputs that are always 0). Predictions are too sure where "
            f"these matter, on inputs unlike the training above all. Keep draws of {ROUNDS * steps:,.0f} steps"
        )
    return found


def common_noise(chains: Sequence[Common]) -> dict[str, str]:
    """What the noise along the direction that has most of it says, in words by its kind. It must be beyond what chance
    does to a mean of so many squares."""
    over = [share for share, size in chains if share > COMMON * chance(size, SIGMAS)]
    if not over:
        return {}
    share = sum(over) / len(over)
    return {
        "common": f"along one direction of the weights the noise of the gradients is {share:.2g} times what is "
        f"injected, and no thermostat takes it away: the stiffest directions of the posterior come out too wide, by a "
        f"factor of up to {1 + share:.2g} in variance, and draws fit the training data worse than the posterior's. On "
        f"average predictions hardly change; what weights or outputs do together may. Larger batches, a larger mass "
        f"or a smaller step (lr) help"
    }


def chance(independent: float, sigmas: float) -> float:
    """What the mean of so many squares of N(0, 1) is beyond as seldom as N(0, 1) is beyond `sigmas` (the χ² of Wilson
    and Hilferty)."""
    if independent < 1:
        return math.inf if sigmas > 0 else 0.0
    spread = 2 / (9 * independent)
    return max(1 - spread + sigmas * math.sqrt(spread), 0.0) ** 3


def _noise(rows: Sequence[Seen], total: int, thermostat: bool) -> str:
    weights = sum(row.noisy for row in rows)
    mean = sum(row.noise * row.noisy for row in rows) / weights
    where = _counted(rows, "noisy", total)
    if thermostat:
        return (
            f"the noise of the gradients is {mean:.2g} times D in {where}: what weights have of it in common no "
            f"thermostat takes away, draws come out too alike and predictions too sure, but for the few directions "
            f"that have most of it, which are too wide. Larger batches, a larger mass "
            f"or a smaller step (lr) bring it below {NOISY}"
        )
    return (
        f"the noise of the gradients makes the variance of {where} some {mean:.0%} too large, and predictions too "
        f"unsure. Lower the step size (lr), use larger batches, or take a sampler with a thermostat (sampler='atmc')"
    )


def _counted(rows: Sequence[Seen], kind: str, total: int) -> str:
    """ "3 of 40 weights (fc.weight 2, fc.bias 1)", the parameters with the most first."""
    places: dict[str, int] = {}
    for row in rows:
        places[row.name] = places.get(row.name, 0) + getattr(row, kind)
    most = sorted(places, key=lambda name: -places[name])
    listed = ", ".join(f"{name} {places[name]:,}" for name in most[:3]) + ", …" * (len(most) > 3)
    return f"{sum(places.values()):,} of {total:,} weights ({listed})"


def _temperature(rows: Sequence[Seen], worst: Callable[..., Seen]) -> str:
    """How many weights are in these rows, and the worst of the parameters."""
    row = worst(rows, key=lambda row: row.kinetic)
    weights = sum(row.numel for row in rows)
    return f"the kinetic temperature of {weights:,} weights is not 1 ({row.kinetic:.2g} in {row.name})"


def drift(series: Tensor, what: str) -> dict[str, str]:
    """Does it run one way from draw to draw? series: (chains, draws) of `what`."""
    if series.shape[1] < FEWEST or (series == series[:, :1]).all():  # a flat prior
        return {}
    # of the ranks in each chain: a steady drift counts alike, whatever its shape
    spread = float(rhat(series.argsort(1).argsort(1).T[None], pooled=True))
    if not spread > DRIFTED:
        return {}
    first, second = (half.mean() for half in series.chunk(2, dim=1))
    return {
        "drift": f"the {what} has not settled among the draws (its mean is {first:.5g} in their first half and "
        f"{second:.5g} in the second): they are of the way to the posterior, and predictions may be others after a "
        f"longer run. Lengthen burn-in and run"
    }
