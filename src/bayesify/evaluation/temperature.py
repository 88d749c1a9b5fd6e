"""Post-hoc calibration of any model: one number, fitted on validation data (Guo et al. 2017).

Classification: p_T ∝ p^(1/T) of the averaged probabilities p; T > 1 makes an overconfident model less sure.
Regression: the predicted standard deviation times T. Accuracy and means stay as they are.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.batches import inputs_for, target_of, to_device
from bayesify.evaluation.evaluate import by_class, counted_targets
from bayesify.predict.predictive import Predictive

LIMITS = (1e-3, 1e3)


@dataclass(frozen=True)
class Tempered:
    """A model whose predictions are tempered; takes the model's place in `bf.evaluate`."""

    model: Any
    temperature: float

    @property
    def likelihood(self) -> Any:
        return self.model.likelihood

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.model.parameters()

    def predict(self, x: Any, num_draws: int = 20, **options: Any) -> Predictive:
        return tempered(self.model.predict(x, num_draws, **options), self.temperature)


def fit_temperature(
    model: Any, loader: Iterable[Any], num_draws: int = 20, generator: Generator | None = None
) -> Tempered:
    """The model at the temperature with the least negative log-likelihood on `loader` (validation data).

    A weak prior keeps the temperature of classifiers near 1 where the data say little, see `best_temperature`.

    >>> calibrated = fit_temperature(model, val_loader)
    >>> bf.evaluate(calibrated, test_loader)["ece"]
    """
    device = next(model.parameters()).device
    logs, labels, squares = [], [], []
    for batch in loader:
        target = to_device(target_of(batch), device)
        prediction = model.predict(inputs_for(model, batch), num_draws, generator=generator)
        if model.likelihood.task == "regression":
            error = target.reshape(prediction.mean.shape).double() - prediction.mean
            squares.append((error.square() / prediction.variance).flatten().cpu())
        else:
            label, counted = counted_targets(prediction, target)
            probs = by_class(prediction, prediction.mean)[counted]
            logs.append(_log(probs).cpu())
            labels.append(label[counted].cpu())
    if not squares and not logs:
        raise ValueError("the loader is empty: a temperature needs validation data")
    if squares:
        return Tempered(model, float(torch.cat(squares).mean().sqrt()))
    return Tempered(model, best_temperature(torch.cat(logs), torch.cat(labels)))


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


def tempered(prediction: Predictive, temperature: float) -> Predictive:
    """The same prediction at another temperature; of its uncertainty the epistemic share stays the same.

    Kept samples are dropped in classification: they are not tempered.
    """
    if not temperature > 0:
        raise ValueError(f"temperature={temperature!r} must be positive")
    if prediction.likelihood.task == "regression":
        factor = temperature**2
        kept = prediction.kept and (prediction.kept[0], factor * prediction.kept[1])
        if kept is not None:  # the draws move away from their mean, each one's noise grows
            kept = (prediction.mean + temperature * (kept[0] - prediction.mean), kept[1])
        return replace(
            prediction, spread=factor * prediction.spread, noise=factor * prediction.noise, kept=kept
        )
    if prediction.likelihood.name == "bernoulli":
        logits = _log(prediction.mean) - _log(1 - prediction.mean)
        mean = (logits / temperature).sigmoid()
    else:
        mean = (_log(prediction.mean) / temperature).softmax(prediction._class_dim)
    changed = replace(prediction, mean=mean.to(prediction.mean.dtype), kept=None)
    share = prediction.noise / prediction.entropy.clamp_min(torch.finfo(prediction.noise.dtype).tiny)
    return replace(changed, noise=share.clamp(0, 1) * changed.entropy)


def _log(probs: Tensor) -> Tensor:
    return probs.double().clamp_min(torch.finfo(torch.float32).tiny).log()
