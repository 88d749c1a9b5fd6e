"""One default run of many chains on a target, and what it says of the sampler.

The mean square about the exact mean, over chains and kept draws, is divided by the exact variance, coordinate by
coordinate. The chains are independent, but for the batches they share, whose noise is a tenth of theirs: the spread
between them is its Monte-Carlo error.
"""

import time
import warnings
from dataclasses import dataclass

import torch
from targets import Target
from torch import Tensor

import bayesify as bf
from bayesify.checks import NonFiniteError

LOW, HIGH = 0.85, 1.18  # of a ratio
FAR = 2.0  # no error excuses a ratio further off than this factor: one chain that ran away makes both large
OFF = 0.05  # of the share of draws below a known quantile
SIGMAS = 3.0
SLOW = 1.05  # R-hat across the chains: above, a miss is one of too few steps
APART = 1.2  # above this a warning is true, though the ratios happen to be right
FROZEN = 2.0  # and above this there must be one
SamplingWarning: type[Warning] | None = getattr(bf, "SamplingWarning", None)


@dataclass(frozen=True)
class Recovery:
    """What a run found."""

    target: str
    easy: bool
    ratio: Tensor  # of every coordinate
    error: Tensor  # its standard error
    rhat: Tensor
    warnings: tuple[str, ...]  # what the library said
    steps: int
    seconds: float
    quantiles: dict[float, tuple[Tensor, Tensor]] | None = (
        None  # level -> share of draws below it, and its error
    )

    @property
    def missed(self) -> Tensor:
        """Coordinates whose ratio is outside LOW to HIGH by more than chance, far off or not finite, or whose known
        quantiles have other shares of the draws below them."""
        inside = (self.ratio >= LOW) & (self.ratio <= HIGH)
        chance = (self.ratio - 1).abs() <= SIGMAS * self.error
        missed = ~(inside | (chance & (self.ratio < FAR) & (self.ratio > 1 / FAR)))
        for level, (share, error) in (self.quantiles or {}).items():
            missed = missed | ((share - level).abs() > (SIGMAS * error).clamp_min(OFF))
        return missed

    @property
    def verdict(self) -> str:
        """right; false alarm: a warning on an easy target that is right, of chains that agree; said: wrong, with a
        warning; slow: wrong, without one, while the chains visibly disagree, or right by chance, of chains that hardly
        move; SILENT: wrong without a word."""
        if not self.missed.any():
            if not self.warnings and self.rhat.max() > FROZEN:
                return "slow"
            return "false alarm" if self.warnings and self.easy and self.rhat.max() < APART else "right"
        if self.warnings:
            return "said"
        return "slow" if (self.rhat[self.missed] > SLOW).all() else "SILENT"


def recover(
    target: Target, sampler: str, num_chains: int = 40, steps: int = 6000, num_kept: int = 50, seed: int = 0
) -> Recovery:
    """Run the sampler with its defaults; half the steps are burn-in."""
    model, loader = target.build(bf.ThermostatMCMC(sampler=sampler, num_kept=num_kept))
    said, start = [], time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            bf.sample_chains(model, loader, num_chains=num_chains, epochs=steps // len(loader), seed=seed)
        except NonFiniteError as error:
            said.append(f"NonFiniteError: {error}")
    said += [str(w.message) for w in caught if SamplingWarning and issubclass(w.category, SamplingWarning)]
    seconds = time.perf_counter() - start
    values = target.coordinates(weights_of(model)) if len(model.posterior.store) else None
    if values is None:
        nan = torch.full_like(target.mean, torch.nan)
        return Recovery(target.name, target.easy, nan, nan, nan, tuple(said), steps, seconds)
    squares = ((values - target.mean).square() / target.var).mean(1)  # (chains, coordinates)
    return Recovery(
        target.name,
        target.easy,
        squares.mean(0),
        squares.std(0) / num_chains**0.5,
        bf.diagnostics.rhat(values).nan_to_num(torch.inf),
        tuple(said),
        steps,
        seconds,
        target.quantiles and {level: shares(values, at) for level, at in target.quantiles.items()},
    )


def shares(values: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Of the draws (chains, draws, coordinates) that lie below, and the standard error."""
    each = (values <= at).double().mean(1)
    return each.mean(0), each.std(0) / len(each) ** 0.5


def weights_of(model: bf.BayesianModule) -> Tensor:
    """Every stored draw: (chains, draws, weights)."""
    chains: dict[int, list[Tensor]] = {}
    for key, weights in model.posterior.each():
        chains.setdefault(key.chain, []).append(torch.cat([w.flatten() for w in weights.values()]).double())
    return torch.stack([torch.stack(draws) for draws in chains.values()])
