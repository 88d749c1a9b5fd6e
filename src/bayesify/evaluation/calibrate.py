"""bf.calibrate: one number, fitted on validation data, that makes predictions less (or more) sure."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.batches import check_loader
from bayesify.checks import Count, checked
from bayesify.evaluation.evaluate import counted_targets, predictions
from bayesify.likelihoods.shapes import log_of, match_real
from bayesify.model import BayesianModule
from bayesify.predict.calibration import calibrated, quantity
from bayesify.predict.frozen import Frozen
from bayesify.predict.predictive import Predictive
from bayesify.predict.views import AUTO

LIMITS = (1e-3, 1e3)
LEAST = 20  # targets, of which a scale of the variance is known within a third


@checked
def calibrate(
    model: BayesianModule | Frozen,
    val_loader: Iterable[Any] | None,
    num_draws: Count = 20,
    generator: Generator | None = None,
    augment: Callable[..., Any] | str | None = AUTO,
) -> float | None:
    """Fit one number on validation data; `model.predict` uses it from then on, and `bf.save` stores it. Returns it.

    Classes: the temperature T of p_T ∝ p^(1/T). Regression: the scale of the predicted variance. Labels and means
    stay as they are. Calling it again fits anew; None in place of the loader takes the calibration back.

    val_loader:  examples the model was not trained on
    num_draws:   of each prediction, as in `model.predict`; a frozen predictor has its own
    augment:     give it here where `model.predict` and `bf.evaluate` will get it

    Training never sees the number, and `bf.fit` drops it when it trains on, since it was fitted to other weights. What
    `bf.conformal` fitted is dropped here, since predictions change: calibrate first.

    >>> bf.calibrate(model, val_loader)
    >>> bf.evaluate(model, test_loader)["ece"]
    """
    if not isinstance(model, BayesianModule | Frozen):
        raise TypeError(
            f"model={type(model).__name__} must be what bf.bayesify returned; of a DDP wrapper give model.module"
        )
    if val_loader is not None:
        check_loader(val_loader, "val_loader")
    before = model.calibration, model.conformal
    model.calibration = model.conformal = None
    if val_loader is None:
        return None
    try:
        views = {} if augment == AUTO else {"augment": augment}
        model.calibration = best_calibration(model, val_loader, num_draws, generator, **views)
    except BaseException:
        model.calibration, model.conformal = before
        raise
    if isinstance(model, BayesianModule):
        model.remember()
    return model.calibration


def calibrate_noise(
    model: BayesianModule,
    val_loader: Iterable[Any],
    num_draws: int = 20,
    generator: Generator | None = None,
) -> float | None:
    """`calibrate` of a regression whose noise was learned: it is that of training targets, which the network fits
    better than others, or still what it started at. None, and nothing is done, of other models and of few targets."""
    law = model.likelihood
    if law.task != "regression" or not (law.learned or law.takes_heads):
        return None
    count = sum(target.numel() for _, target in predictions(model, val_loader, 1, generator))
    return calibrate(model, val_loader, num_draws, generator) if count >= LEAST else None


@dataclass(frozen=True)
class Calibrated:
    """A model whose predictions are calibrated by `value`; takes the model's place in `bf.evaluate`."""

    model: Any
    value: float

    @property
    def likelihood(self) -> Any:
        """The model's own."""
        return self.model.likelihood

    def parameters(self) -> Iterator[nn.Parameter]:
        """The model's own."""
        return self.model.parameters()

    def predict(self, x: Any, num_draws: int = 20, **options: Any) -> Predictive:
        """As the model predicts, then calibrated."""
        return calibrated(self.model.predict(x, num_draws, **options), self.value)


def best_calibration(
    model: Any,
    loader: Iterable[Any],
    num_draws: int = 20,
    generator: Generator | None = None,
    **options: Any,
) -> float:
    """The number with the least negative log-likelihood on `loader`: `best_temperature`; of normal regressions the
    mean of (y − mean)² / variance, of others `best_scale`."""
    logs, labels, squares, laws = [], [], [], []
    for prediction, target in predictions(model, loader, num_draws, generator, **options):
        if not prediction.mean.isfinite().all():
            raise ValueError("the model predicts infinite values: there is nothing to calibrate")
        if prediction.law is not None:
            laws.append((prediction.to("cpu"), target.cpu()))
        elif model.likelihood.task == "regression":
            error = match_real(prediction.mean, target, values=True).double() - prediction.mean
            squares.append((error.square() / prediction.variance).flatten().cpu())
        else:
            label, counted = counted_targets(prediction, target)
            logs.append(log_of(prediction.likelihood.classes.rows(prediction.mean)[counted]).cpu())
            labels.append(label[counted].cpu())
    found = sum(map(len, squares or labels or [target for _, target in laws]))
    if found == 0:
        raise ValueError("val_loader has no target that counts: calibration needs validation data")
    if laws:
        return best_scale(laws)
    if not squares:
        return best_temperature(torch.cat(logs), torch.cat(labels))
    scale = float(torch.cat(squares).mean())
    if not 0 < scale < math.inf:
        raise ValueError(
            f"the {quantity(model.likelihood)} came out as {scale!r}: the predicted variances are 0, or the "
            f"predictions exact; give validation data that the model does not know, and a likelihood with noise"
        )
    return scale


def best_temperature(log_probs: Tensor, target: Tensor, prior_std: float | None = 0.5) -> float:
    """argmin_T Σ_n [log Σ_c p_nc^(1/T) − (1/T) log p_n,target] + ½ (log T)² / prior_std², by bisection.

    The second term is a prior around T = 1. It counts as little as one example; without it (prior_std=None) a
    validation part that is predicted without a mistake would ask for T = 0.

    Args:
        log_probs: (N, classes), up to a constant for each example.
        target: (N,).
    """
    log_probs = log_probs.double()
    picked = log_probs.gather(1, target[:, None]).squeeze(1)
    pull = 0.0 if prior_std is None else 1 / prior_std**2
    low, high = (math.log(1 / limit) for limit in reversed(LIMITS))  # of u = −log T
    for _ in range(60):
        u = (low + high) / 2
        weights = (math.exp(u) * log_probs).softmax(1)
        slope = math.exp(u) * float(((weights * log_probs).sum(1) - picked).sum()) + pull * u
        low, high = (low, u) if slope > 0 else (u, high)
    return math.exp(-(low + high) / 2)


def best_scale(parts: list[tuple[Predictive, Tensor]]) -> float:
    """argmin_s −Σ log p_s(y), p_s the law of a regression stretched about its mean by √s; by thirds of log s."""

    def loss(log_scale: float) -> float:
        scale = math.exp(log_scale)
        try:
            return -sum(float(calibrated(p, scale).log_prob(y).double().sum()) for p, y in parts)
        except ValueError as error:
            raise ValueError(f"{error} (whole numbers, is_discrete = True, are not calibrated)") from error

    low, high = (2 * math.log(limit) for limit in LIMITS)
    for _ in range(45):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return math.exp((low + high) / 2)
