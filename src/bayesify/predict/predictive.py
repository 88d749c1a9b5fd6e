"""Predictive: what a model predicts and how far to trust it, one object for every method."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.base import match_shape, sum_over_example


@dataclass(frozen=True)
class Predictive:
    """A predictive distribution, averaged over `num_draws` draws of the network.

    Classification: `mean` = `probs`; `aleatoric` = expected entropy of the draws, `epistemic` = mutual
    information, `entropy` = their sum; `variance` = variance of the probabilities over draws.
    Regression, in the target's units: `aleatoric` = mean predicted noise variance, `epistemic` =
    variance of the means over draws, `variance` = their sum (law of total variance); `entropy` of the
    normal with that mean and variance.
    Uncertainties are in nats for classification and in squared target units for regression.

    Where the input carried variance of its own (`bf.Moments`), `input_noise` is what it adds to the uncertainty and
    `input_variance` what it adds to `variance`: the difference to a second pass with an exact input, so terms that
    need both random weights and a noisy input count here. `epistemic` is the rest, that of the exact input:
    aleatoric + epistemic + input_noise is the entropy (classification) or the variance (regression).
    """

    likelihood: Likelihood
    num_draws: int
    mean: Tensor  # average over draws of the probabilities or the predicted means
    spread: Tensor  # variance of those over draws
    noise: Tensor  # average over draws of the entropy (classification) or the variance (regression)
    votes: Tensor | None  # share of draws voting for each class
    kept: tuple[Tensor, Tensor] | None = None  # (draws, ...) of both summaries, with keep_samples=True
    input_shares: tuple[Tensor, Tensor] | None = (
        None  # of a noisy input in `spread`, and in what the draws disagree
    )

    # -- classification -------------------------------------------------------------------------------
    @property
    def probs(self) -> Tensor:
        """Class probabilities (for a bernoulli likelihood: the probability of 1)."""
        self._only("classification", "probs", "mean")
        return self.mean

    @property
    def label(self) -> Tensor:
        """The most probable class."""
        self._only("classification", "label", "mean")
        probs = self.mean
        return (probs > 0.5).long() if self._binary else probs.argmax(self._class_dim)

    @property
    def confidence(self) -> Tensor:
        """Probability of `label`."""
        self._only("classification", "confidence", "std")
        probs = self.mean
        return torch.maximum(probs, 1 - probs) if self._binary else probs.amax(self._class_dim)

    @property
    def agreement(self) -> Tensor:
        """Share of draws that vote for the class with most votes."""
        self._only("classification", "agreement", "std")
        assert self.votes is not None
        if self._binary:
            return torch.maximum(self.votes, 1 - self.votes)
        return self.votes.amax(self._class_dim)

    @property
    def mutual_information(self) -> Tensor:
        """entropy − expected entropy of the draws: how much the draws disagree."""
        self._only("classification", "mutual_information", "epistemic")
        return (self.entropy - self.noise).clamp_min(0)

    # -- both -----------------------------------------------------------------------------------------
    @property
    def entropy(self) -> Tensor:
        if self.likelihood.task == "regression":
            return 0.5 * (2 * math.pi * math.e * self.variance).log()
        p = self.mean
        if self._binary:
            return torch.special.entr(p) + torch.special.entr(1 - p)
        return torch.special.entr(p).sum(self._class_dim)

    @property
    def aleatoric(self) -> Tensor:
        return self.noise

    @property
    def epistemic(self) -> Tensor:
        return self._disagreement if self.input_shares is None else self._disagreement - self.input_noise

    @property
    def input_noise(self) -> Tensor:
        """What the input's own variance adds to the uncertainty; zeros for an exact input."""
        total = self._disagreement
        return torch.zeros_like(total) if self.input_shares is None else self.input_shares[1] * total

    @property
    def input_variance(self) -> Tensor:
        """What the input's own variance adds to `variance`; zeros for an exact input."""
        return (
            torch.zeros_like(self.spread) if self.input_shares is None else self.input_shares[0] * self.spread
        )

    @property
    def variance(self) -> Tensor:
        return self.noise + self.spread if self.likelihood.task == "regression" else self.spread

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def samples(self) -> Tensor:
        """(draws, ...): each draw's probabilities, or each draw's predicted mean (without its noise)."""
        return self._kept("samples")[0]

    def log_prob(self, target: Tensor) -> Tensor:
        """log p(target) under the predictive, summed over all but the batch dimension: (batch,).

        Classification: of the averaged probabilities. Regression: the mixture over draws with
        keep_samples=True, else the normal with the predictive's mean and variance.
        """
        if self.likelihood.task == "classification":
            target = self.likelihood.check(self.mean, target, values=True)
            return _class_log_prob(self, target)
        target = match_shape(self.mean, target).to(self.mean.dtype)
        if self.kept is None:
            return _normal_log_prob(self.mean, self.variance, target)
        means, variances = self.kept
        per_draw = torch.stack(
            [_normal_log_prob(m, v, target) for m, v in zip(means, variances, strict=True)]
        )
        return per_draw.logsumexp(0) - math.log(len(per_draw))

    def interval(self, mass: float = 0.9) -> tuple[Tensor, Tensor]:
        """The central interval that holds `mass` of the predictive (regression) or of the draws'
        probabilities (classification), from the kept samples."""
        if not 0 < mass < 1:
            raise ValueError(f"mass={mass!r} must lie between 0 and 1")
        means, variances = self._kept("interval")
        lower, upper = (1 - mass) / 2, (1 + mass) / 2
        if self.likelihood.task == "classification":
            return _quantile(means, lower), _quantile(means, upper)
        return _mixture_quantile(means, variances, lower), _mixture_quantile(means, variances, upper)

    def __len__(self) -> int:
        return len(self.mean)

    def beside(self, exact: "Predictive") -> "Predictive":
        """The same predictive, told what is predicted for the input without its variance."""
        shares = (
            _share(self.spread, exact.spread),
            _share(self._disagreement, exact._disagreement),
        )
        return replace(self, input_shares=shares)

    def to(self, device: Any) -> "Predictive":
        """The same predictive with its tensors on another device."""
        return self._map(lambda t: t.to(device))

    def _map(self, function: Callable[[Tensor], Tensor]) -> "Predictive":
        return replace(
            self,
            mean=function(self.mean),
            spread=function(self.spread),
            noise=function(self.noise),
            votes=None if self.votes is None else function(self.votes),
            kept=None if self.kept is None else (function(self.kept[0]), function(self.kept[1])),
            input_shares=None
            if self.input_shares is None
            else (function(self.input_shares[0]), function(self.input_shares[1])),
        )

    @property
    def _disagreement(self) -> Tensor:
        """Of the draws: their variance (regression) or mutual information (classification)."""
        return self.spread if self.likelihood.task == "regression" else self.mutual_information

    @property
    def _binary(self) -> bool:
        return self.likelihood.name == "bernoulli"

    @property
    def _class_dim(self) -> int:
        return int(self.likelihood.class_dim)  # type: ignore[arg-type]

    def _only(self, task: str, field: str, instead: str) -> None:
        if self.likelihood.task != task:
            raise AttributeError(f".{field} is for {task}; this is {self.likelihood.task}: use .{instead}")

    def _kept(self, field: str) -> tuple[Tensor, Tensor]:
        if self.kept is None:
            raise ValueError(f".{field} needs the draws: call predict(..., keep_samples=True)")
        return self.kept


def concatenate(parts: Sequence[Predictive]) -> Predictive:
    """Predictives of consecutive batches as one."""
    first = parts[0]
    return replace(
        first,
        mean=torch.cat([p.mean for p in parts]),
        spread=torch.cat([p.spread for p in parts]),
        noise=torch.cat([p.noise for p in parts]),
        votes=None if first.votes is None else torch.cat([p.votes for p in parts if p.votes is not None]),
        kept=None
        if first.kept is None
        else (
            torch.cat([p.kept[0] for p in parts if p.kept], 1),
            torch.cat([p.kept[1] for p in parts if p.kept], 1),
        ),
        input_shares=None
        if all(p.input_shares is None for p in parts)
        else (_cat_shares(parts, 0), _cat_shares(parts, 1)),
    )


def _cat_shares(parts: Sequence[Predictive], i: int) -> Tensor:
    """Batches with an exact input have shares of 0."""
    like = ((p.spread, p._disagreement)[i] for p in parts)
    return torch.cat(
        [
            torch.zeros_like(t) if p.input_shares is None else p.input_shares[i]
            for p, t in zip(parts, like, strict=True)
        ]
    )


def _share(whole: Tensor, exact: Tensor) -> Tensor:
    """1 − exact/whole, between 0 and 1; 0 where there is nothing to share."""
    return torch.where(whole > 0, 1 - exact / whole, 0.0).clamp(0, 1)


def _class_log_prob(prediction: Predictive, target: Tensor) -> Tensor:
    """log of the averaged probability of the target, training's class weights left out."""
    probs, floor = prediction.mean, torch.finfo(prediction.mean.dtype).tiny
    if prediction._binary:
        log_prob = target * probs.clamp_min(floor).log() + (1 - target) * (1 - probs).clamp_min(floor).log()
        return sum_over_example(log_prob)
    log_probs = probs.clamp_min(floor).log().movedim(prediction._class_dim, 1)
    if target.is_floating_point():
        return sum_over_example((target.movedim(prediction._class_dim, 1) * log_probs).sum(1))
    ignored = int(prediction.likelihood.ignore_index)  # type: ignore[arg-type]
    return -sum_over_example(F.nll_loss(log_probs, target, ignore_index=ignored, reduction="none"))


def _quantile(values: Tensor, level: float) -> Tensor:
    """Quantile over the first dimension, linear between order statistics (torch.quantile has a size limit)."""
    ordered = values.sort(0).values
    position = level * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return torch.lerp(ordered[low], ordered[high], position - low)


def _normal_log_prob(mean: Tensor, var: Tensor, target: Tensor) -> Tensor:
    log_prob = -0.5 * ((target - mean).square() / var + (2 * math.pi * var).log())
    return sum_over_example(log_prob)


def _mixture_quantile(means: Tensor, variances: Tensor, level: float) -> Tensor:
    """Quantile of the equal mixture of normals, by bisection to float precision."""
    stds = variances.sqrt()
    low, high = (means - 10 * stds).amin(0), (means + 10 * stds).amax(0)
    for _ in range(60):
        middle = (low + high) / 2
        below = torch.special.ndtr((middle - means) / stds).mean(0) < level
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2
