"""What a regression predicts: the average over draws of each draw's law of the target, two forms with one face."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.base import over_draws
from bayesify.likelihoods.shapes import match_shape, normal_log_prob
from bayesify.torch_internals import pytree


@dataclass(frozen=True)
class NormalMixture:
    """(1/S) Σ_s N(y; mean_s, var_s)."""

    means: Tensor  # (draws, batch, ...)
    variances: Tensor

    def log_prob(self, target: Tensor) -> Tensor:
        """Of all numbers of an example together: (batch,)."""
        target = match_shape(self.means[0], target)
        pairs = zip(self.means, self.variances, strict=True)
        each = torch.stack([normal_log_prob(mean, var, target) for mean, var in pairs])
        return each.logsumexp(0) - math.log(len(each))

    def cdf(self, value: Tensor) -> Tensor:
        """P(y ≤ value), elementwise; of a draw without variance that hits the value one half."""
        stds = self.variances.sqrt().clamp_min(torch.finfo(self.variances.dtype).tiny)
        return torch.special.ndtr((value - self.means) / stds).mean(0)

    level = cdf

    def quantile(self, level: float) -> Tensor:
        """Where P(y ≤ value) = level."""
        stds = self.variances.sqrt()
        if len(stds) == 1:
            return self.means[0] + float(torch.special.ndtri(torch.tensor(level).double())) * stds[0]
        return _bisected(self.cdf, level, (self.means - 10 * stds).amin(0), (self.means + 10 * stds).amax(0))

    def double(self) -> "NormalMixture":
        """The same in float64."""
        return NormalMixture(self.means.double(), self.variances.double())


@dataclass(frozen=True)
class OutputMixture:
    """(1/S) Σ_s p(y | output_s) of any likelihood; targets may stand in other units, y = shift + scale · t.

    It holds the outputs of all draws, S times the memory of one, and the likelihood as it was when they were drawn.
    """

    likelihood: Likelihood
    outputs: Any  # (draws, batch, ...), a tensor or several heads
    shift: Tensor  # of the shape of the target, as the scale
    scale: Tensor

    @classmethod
    def of(cls, likelihood: Likelihood, outputs: Any, like: Tensor) -> "OutputMixture":
        """In the likelihood's own units; `like` has the target's shape."""
        return cls(copy.deepcopy(likelihood), outputs, torch.zeros_like(like), torch.ones_like(like))

    def log_prob(self, target: Tensor) -> Tensor:
        """Of all numbers of an example together: (batch,)."""
        first = pytree.tree_map(lambda t: t[0], self.outputs)
        own, log_slope = self.likelihood.rescaled(target, self.shift, self.scale)
        with torch.no_grad():
            log_prob = self.likelihood.mixture_log_prob(self.outputs, self.likelihood.check(first, own, True))
        return log_prob + log_slope

    def cdf(self, value: Tensor) -> Tensor:
        """P(y ≤ value), elementwise."""
        return self._own_cdf((value - self.shift) / self.scale)

    def level(self, value: Tensor) -> Tensor:
        """P(y ≤ value); of whole numbers the mean of it and P(y < value), which is ½ on average for a right law."""
        if not self.likelihood.is_discrete:
            return self.cdf(value)
        return (self.cdf(value) + self.cdf(value - self.scale)) / 2

    def quantile(self, level: float) -> Tensor:
        """The smallest value with P(y ≤ value) ≥ level."""
        with torch.no_grad():
            means, variances = self.likelihood.summaries(self.outputs)
        stds = torch.where(variances.isfinite(), variances.sqrt(), 1.0 + means.abs())
        low, high = (means - 10 * stds).amin(0), (means + 10 * stds).amax(0)
        for _ in range(60):  # heavy tails reach further
            width = high - low
            too_high, too_low = self._own_cdf(low) >= level, self._own_cdf(high) < level
            if not (too_high | too_low).any():
                break
            low, high = torch.where(too_high, low - width, low), torch.where(too_low, high + width, high)
        found = _bisected(self._own_cdf, level, low, high)
        return self.shift + self.scale * (found.round() if self.likelihood.is_discrete else found)

    def _own_cdf(self, value: Tensor) -> Tensor:
        draws = len(pytree.tree_leaves(self.outputs)[0])
        repeated = value.expand(draws, *value.shape).flatten(0, 1)
        with torch.no_grad():
            return over_draws(lambda output: self.likelihood.cdf(output, repeated), self.outputs).mean(0)

    def moved(self, shift: Tensor, scale: Tensor | float) -> "OutputMixture":
        """The law of shift + scale · y."""
        if self.likelihood.is_discrete:
            raise ValueError(
                f"predictions of whole numbers (likelihood {self.likelihood.name!r}) cannot be rescaled: "
                f"use them as they are"
            )
        return replace(self, shift=shift + scale * self.shift, scale=scale * self.scale)

    def double(self) -> "OutputMixture":
        """The same in float64."""
        return self.map(lambda t: t.double() if t.is_floating_point() else t)

    def map(self, function: Callable[[Tensor], Tensor]) -> "OutputMixture":
        """The same on another device or in another precision; `function` takes and gives tensors."""
        likelihood = copy.deepcopy(self.likelihood)
        for tensor in (*likelihood.parameters(), *likelihood.buffers()):
            tensor.data = function(tensor.data)
        outputs = pytree.tree_map(function, self.outputs)
        return OutputMixture(likelihood, outputs, function(self.shift), function(self.scale))


def joined(parts: Sequence[OutputMixture]) -> OutputMixture:
    """Mixtures of consecutive batches as one."""
    return replace(
        parts[0],
        outputs=pytree.tree_map(lambda *each: torch.cat(each, 1), *(p.outputs for p in parts)),
        shift=torch.cat([p.shift for p in parts]),
        scale=torch.cat([p.scale for p in parts]),
    )


def _bisected(cdf: Callable[[Tensor], Tensor], level: float, low: Tensor, high: Tensor) -> Tensor:
    """Where `cdf` passes `level`, to float precision."""
    for _ in range(60):
        middle = (low + high) / 2
        below = cdf(middle) < level
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2
