"""Predictive: what a model predicts and how far to trust it, one object for every method."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bayesify.checks import Fraction, as_tensor, check_setting, checked
from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.shapes import match_shape
from bayesify.moments import replace as replace_in
from bayesify.predict.conformal import ConformalRule
from bayesify.predict.decisions import surest, uncertainty
from bayesify.predict.interval import Interval
from bayesify.predict.mixture import NormalMixture, OutputMixture, joined

#: the fields of a `Predictive` that follow from the summaries of its draws
OF_DRAWS = ("mean", "spread", "noise", "votes")
#: those that are tensors, pairs of them, or None
TENSORS = ("mean", "spread", "noise", "votes", "per_draw", "input_shares")


@dataclass(frozen=True)
class Predictive:
    """A predictive distribution, averaged over `num_draws` draws of the network.

    Classification: `mean` = `probs`; `aleatoric` = expected entropy of the draws, `epistemic` = mutual
    information, `entropy` = their sum; `variance` = variance of the probabilities over draws.
    Regression, in the target's units: `aleatoric` = mean predicted noise variance, `epistemic` =
    variance of the means over draws, `variance` = their sum (law of total variance); `entropy` of the
    normal with that mean and variance. Densities and quantiles are the likelihood's own, averaged over draws.
    Variances over S draws have divisor S − 1; how far few draws let `epistemic` err says `epistemic_error`.
    Uncertainties are in nats for classification and in squared target units for regression.

    Where the input carried variance of its own (`bf.Moments`), `input_noise` is what it adds to the uncertainty and
    `input_variance` what it adds to `variance`: the difference to a second pass with an exact input, so terms that
    need both random weights and a noisy input count here. `epistemic` is the rest, that of the exact input:
    aleatoric + epistemic + input_noise is the entropy (classification) or the variance (regression).
    """

    likelihood: Likelihood
    num_draws: int
    mean: Tensor  # average over draws of the probabilities or the predicted means
    spread: Tensor  # variance of those over draws, divisor S − 1; of one draw 0
    noise: Tensor  # average over draws of the entropy (classification) or the variance (regression)
    votes: Tensor | None  # share of draws voting for each class
    per_draw: tuple[Tensor, Tensor] | None = None  # (draws, ...) of both summaries, with keep_samples=True
    # of a noisy input in `spread`, and in what the draws disagree
    input_shares: tuple[Tensor, Tensor] | None = None
    law: OutputMixture | None = None  # of a regression that is not normal: the outputs of all draws
    is_normal: bool = (
        False  # the law of a regression is the normal of this mean and variance, whatever draws are kept
    )
    conformal: ConformalRule | None = None  # of `bf.conformal`: what makes `sets` and `interval`

    @classmethod
    def of_draws(cls, likelihood: Likelihood, value: Tensor, noise: Tensor, matched: bool) -> "Predictive":
        """From both summaries of all draws, (draws, ...); `mean`, `spread`, `noise` and `votes` are computed when they
        are asked for.

        matched: the draws' variance has divisor S
        """
        made: Predictive = object.__new__(cls)
        vars(made).update(likelihood=likelihood, num_draws=len(value), _draws=(value, noise, matched))
        return made

    def __getattr__(self, name: str) -> Any:
        if name not in OF_DRAWS or "_draws" not in vars(self):
            return object.__getattribute__(self, name)  # raises, as it did before
        value, noise, matched = vars(self)["_draws"]
        found: Any
        if name == "mean":
            found = value.mean(0) if len(value) > 1 else value[0]
        elif name == "noise":
            found = noise.mean(0) if len(noise) > 1 else noise[0]
        elif name == "spread":
            found = (value - self.mean).square().sum(0) / divisor(len(value), matched)
        else:
            found = self.likelihood.votes(value)
            found = None if found is None else found / len(value)
        vars(self)[name] = found
        return found

    @property
    def told(self) -> list[Tensor]:
        """Tensors that are finite where all is; the noise of classes is that of their probabilities."""
        value, noise = vars(self)["_draws"][:2] if "_draws" in vars(self) else (self.mean, self.noise)
        return [value, noise] if self.likelihood.task == "regression" else [value]

    # -- classification -------------------------------------------------------------------------------
    @property
    def probs(self) -> Tensor:
        """Class probabilities (for a bernoulli likelihood: the probability of 1)."""
        self._only("classification", "probs", "mean")
        return self.mean

    @property
    def label(self) -> Tensor:
        """The most probable class; −1 where the probabilities are NaN (`predict(on_nonfinite="nan")`)."""
        self._only("classification", "label", "mean")
        return self.likelihood.classes.label(self.mean)

    @property
    def confidence(self) -> Tensor:
        """Probability of `label`."""
        self._only("classification", "confidence", "std")
        return self.likelihood.classes.largest(self.mean)

    @property
    def agreement(self) -> Tensor:
        """Share of draws that vote for the class with most votes."""
        self._only("classification", "agreement", "std")
        assert self.votes is not None
        return self.likelihood.classes.largest(self.votes)

    @property
    def mutual_information(self) -> Tensor:
        """entropy − expected entropy of the draws: how much the draws disagree."""
        self._only("classification", "mutual_information", "epistemic")
        return (self.entropy - self.noise).clamp_min(0)

    # -- both -----------------------------------------------------------------------------------------
    @property
    def entropy(self) -> Tensor:
        """Total uncertainty in nats; of regression that of the normal with the same mean and variance."""
        if self.likelihood.task == "regression":
            return 0.5 * (2 * math.pi * math.e * self.variance).log()
        return self.likelihood.classes.entropy(self.mean)

    @property
    def aleatoric(self) -> Tensor:
        """Uncertainty that more data would not remove: that of the single draws, on average."""
        return self.noise

    @property
    def epistemic(self) -> Tensor:
        """Uncertainty that the draws' disagreement shows, for the input without its own variance."""
        return self._disagreement if self.input_shares is None else self._disagreement - self.input_noise

    @property
    def epistemic_error(self) -> Tensor:
        """Standard error of `epistemic` as an estimate from S independent draws: epistemic · √(2 / (S − 1)).

        Of variances it is that of normal draws; of mutual information, which is near a sum of squares where draws
        differ little, that of two classes, and at most that of more. One draw tells nothing: infinite. Draws of
        density propagation have the variance that its one pass found, without this error.
        """
        if self.num_draws == 1:
            return torch.full_like(self.epistemic, math.inf)
        return self.epistemic * math.sqrt(2 / (self.num_draws - 1))

    @property
    def input_noise(self) -> Tensor:
        """What the input's own variance adds to the uncertainty; zeros for an exact input."""
        total = self._disagreement
        return torch.zeros_like(total) if self.input_shares is None else self.input_shares[1] * total

    @property
    def input_variance(self) -> Tensor:
        """What the input's own variance adds to `variance`; zeros for an exact input."""
        spread = self.spread
        return torch.zeros_like(spread) if self.input_shares is None else self.input_shares[0] * spread

    @property
    def variance(self) -> Tensor:
        """Of the target (regression: noise included), or of the probabilities over draws."""
        return self.noise + self.spread if self.likelihood.task == "regression" else self.spread

    @property
    def std(self) -> Tensor:
        """The root of `variance`."""
        return self.variance.sqrt()

    @property
    def samples(self) -> Tensor:
        """(draws, ...): each draw's probabilities, or each draw's predicted mean (without its noise)."""
        return self._per_draw("samples")[0]

    def log_prob(self, target: Tensor) -> Tensor:
        """log p(target) under the predictive, summed over all but the batch dimension: (batch,).

        Classification: of the averaged probabilities. Regression: log of the likelihood's own density, averaged over
        the draws; of normal likelihoods without keep_samples=True the normal with the predictive's mean and variance.
        """
        target = as_tensor(target, "target", self.mean)
        if self.likelihood.task == "classification":
            target = self.likelihood.check_probs(self.mean, target)
            return self.likelihood.classes.log_prob(self.mean, target)
        return self._law.log_prob(target.to(self.mean.dtype))

    def cdf(self, value: Tensor) -> Tensor:
        """P(y ≤ value) of each number of a regression, in float64; of the law that `log_prob` takes."""
        self._only("regression", "cdf", "probs")
        return self._law.double().cdf(match_shape(self.mean, value).double())

    def level(self, target: Tensor) -> Tensor:
        """As `cdf`; of whole numbers half way up the step at the target. Uniform where the predictive is right."""
        self._only("regression", "level", "probs")
        return self._law.double().level(match_shape(self.mean, target).double())

    @property
    def interval(self) -> Interval:
        """`low, high = p.interval` is the conformal interval of `bf.conformal` (regression); `p.interval(0.9)` the
        central one of the predictive, or of the draws' probabilities (classification), which needs keep_samples=True.
        """
        return Interval(self)

    @property
    def sets(self) -> Tensor:
        """(batch, classes), bool: the conformal set of every example, see `bf.conformal`."""
        self._only("classification", "sets", "interval")
        return self._rule("sets").sets(self)

    def uncertainty(self, score: str = "entropy") -> Tensor:
        """(batch,): one number for each example, larger where the prediction is less sure; the mean over positions.

        score: "entropy", "confidence" (1 − that of the label), "agreement" (1 − that of the draws), "variance", or
               what the draws disagree on: "bald", of classes also "mutual_information"
        """
        return uncertainty(self, score)

    @checked
    def abstain(
        self,
        coverage: Fraction | None = None,
        score: str = "entropy",
        threshold: float | Tensor | None = None,
    ) -> Tensor:
        """Answer where the prediction is sure, abstain elsewhere: (batch,), bool, True where to answer.

        coverage:  the share of these examples to answer, the surest by `uncertainty(score)`, rounded up; 0.9
        threshold: in its place, the largest uncertainty that is answered, as found on other data:
                   `validation.uncertainty(score).quantile(0.9)`

        Examples whose prediction is NaN are never answered.
        """
        scores = self.uncertainty(score)
        if threshold is not None:
            if coverage is not None:
                raise ValueError(f"coverage={coverage!r} and threshold={threshold!r}: give one of them")
            check_setting("threshold", threshold, float)
            return scores <= threshold
        share = 0.9 if coverage is None else coverage
        return surest(scores, math.ceil(share * len(scores) - 1e-9)) & ~scores.isnan()

    def __len__(self) -> int:
        return len(self.mean)

    def beside(self, exact: "Predictive") -> "Predictive":
        """The same predictive, told what is predicted for the input without its variance."""
        shares = (_share(self.spread, exact.spread), _share(self._disagreement, exact._disagreement))
        return replace(self, input_shares=shares)

    def to(self, device: Any) -> "Predictive":
        """The same predictive with its tensors on another device."""
        if self.told[0].device == torch.device(device):
            return self

        def there(tensor: Tensor) -> Tensor:
            return tensor.to(device)

        tensors = {name: replace_in(getattr(self, name), Tensor, there) for name in TENSORS}
        return replace(self, **tensors, law=self.law and self.law.map(there))

    @property
    def _disagreement(self) -> Tensor:
        """Of the draws: their variance (regression) or mutual information (classification)."""
        return self.spread if self.likelihood.task == "regression" else self.mutual_information

    @property
    def components(self) -> NormalMixture:
        """The normal laws that the law of a normal regression's target is the average of."""
        if self.per_draw is not None and not self.is_normal:
            return NormalMixture(*self.per_draw)
        return NormalMixture(self.mean[None], self.variance[None])

    @property
    def _law(self) -> NormalMixture | OutputMixture:
        """The law of a regression's target."""
        return self.components if self.law is None else self.law

    def _rule(self, field: str) -> ConformalRule:
        if self.conformal is None:
            central = " (.interval(0.9) is the central interval of the model's own law)"
            raise AttributeError(
                f".{field} needs a conformal rule, which this prediction has none of: call bf.conformal(model, "
                f"calibration_loader), then model.predict{central if field == 'interval' else ''}"
            )
        return self.conformal

    def _only(self, task: str, field: str, instead: str) -> None:
        if self.likelihood.task != task:
            raise AttributeError(f".{field} is for {task}; this is {self.likelihood.task}: use .{instead}")

    def _per_draw(self, field: str) -> tuple[Tensor, Tensor]:
        if self.per_draw is None:
            raise ValueError(f".{field} needs the draws: call predict(..., keep_samples=True)")
        return self.per_draw


def concatenate(parts: Sequence[Predictive]) -> Predictive:
    """Predictives of consecutive batches as one."""
    if any(p.input_shares is not None for p in parts):
        parts = [p if p.input_shares is not None else _without_shares(p) for p in parts]
    tensors: dict[str, Any] = {}
    for name in TENSORS:
        dim, values = int(name == "per_draw"), [getattr(p, name) for p in parts]
        if isinstance(values[0], tuple):
            tensors[name] = tuple(torch.cat(each, dim) for each in zip(*values, strict=True))
        elif values[0] is not None:
            tensors[name] = torch.cat(values)
    return replace(parts[0], **tensors, law=parts[0].law and joined([p.law for p in parts if p.law]))


def divisor(num_draws: int, matched: bool) -> int:
    """S − 1: the draws lie closer to their own mean than to the true one; one draw shows no disagreement.

    matched: the draws' own mean and variance, with divisor S, are the true ones
    """
    return num_draws if matched else max(num_draws - 1, 1)


def _without_shares(exact: Predictive) -> Predictive:
    """A prediction for an input without variance, which has shares of 0."""
    shares = (torch.zeros_like(exact.spread), torch.zeros_like(exact._disagreement))
    return replace(exact, input_shares=shares)


def _share(whole: Tensor, exact: Tensor) -> Tensor:
    """1 − exact/whole, between 0 and 1; 0 where there is nothing to share."""
    return torch.where(whole > 0, 1 - exact / whole, 0.0).clamp(0, 1)
