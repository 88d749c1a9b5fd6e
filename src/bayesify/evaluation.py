"""bf.evaluate: a model's predictions on a data set as a dictionary of conventional metrics."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify import metrics
from bayesify.batches import inputs_of, target_of, to_device
from bayesify.predictive import Predictive


def evaluate(
    model: Any,
    loader: Iterable[Any],
    num_draws: int = 20,
    num_bins: int = 15,
    generator: Generator | None = None,
) -> dict[str, float]:
    """Metrics of `model` over `loader`, which gives (input, target) pairs or dicts with "labels".

    Classification: accuracy, nll, brier, ece and mce (`num_bins` equal-width bins), and the means of
    entropy, epistemic uncertainty and confidence; with several positions per example, over the positions
    that are not ignored. Regression: rmse, nll (mixture over draws, per example), mean std.
    """
    device = next(model.parameters()).device
    regression = model.likelihood.task == "regression"
    parts: list[dict[str, Tensor]] = []
    num_data = 0
    for batch in loader:
        target = to_device(target_of(batch), device)
        num_data += len(target)
        x = to_device(inputs_of(batch), device)
        prediction = model.predict(x, num_draws, keep_samples=regression, generator=generator)
        part = _real(prediction, target) if regression else _classes(prediction, target)
        parts.append({key: value.cpu() for key, value in part.items()})
    if not parts:
        raise ValueError("the loader is empty: nothing to evaluate")
    joined = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    mean, target = joined.pop("mean"), joined.pop("target")
    result = {key: float(value.double().mean()) for key, value in joined.items()}
    if regression:
        return {"rmse": float(metrics.rmse(mean, target)), **result, "num_data": float(num_data)}
    if not len(target):
        raise ValueError("every target is ignored: nothing to evaluate")
    quality = {name: float(metrics.METRICS[name](mean, target)) for name in ("accuracy", "nll", "brier")}
    calibration = {name: float(metrics.METRICS[name](mean, target, num_bins)) for name in ("ece", "mce")}
    counts = {"num_bins": float(num_bins), "num_data": float(num_data)}
    return {**quality, **calibration, **result, **counts}


def _real(prediction: Predictive, target: Tensor) -> dict[str, Tensor]:
    mean = prediction.mean
    nll = -prediction.log_prob(target)
    return {"mean": mean, "target": target.reshape(mean.shape), "nll": nll, "std": prediction.std.flatten()}


def _classes(prediction: Predictive, target: Tensor) -> dict[str, Tensor]:
    """Every counted position of a batch: probabilities (positions, classes), targets and uncertainties."""
    target = prediction.likelihood.check(prediction.mean, target, values=True)
    if prediction.likelihood.name == "bernoulli":
        if not torch.equal(target, target.round()):
            raise ValueError("target holds probabilities: evaluate needs labels, 0 or 1")
        probs = torch.stack([1 - prediction.mean, prediction.mean], -1).reshape(-1, 2)
    elif target.is_floating_point():
        raise ValueError("target holds class probabilities: evaluate needs class indices (target.argmax(1))")
    else:
        probs = prediction.mean.movedim(prediction._class_dim, -1).flatten(0, -2)
    target = target.reshape(-1).long()
    ignored = getattr(prediction.likelihood, "ignore_index", None)
    counted = torch.ones_like(target, dtype=torch.bool) if ignored is None else target != ignored
    numbers = {
        "entropy": prediction.entropy,
        "epistemic": prediction.epistemic,
        "confidence": prediction.confidence,
    }
    positions = {key: value.reshape(-1)[counted] for key, value in numbers.items()}
    return {"mean": probs[counted], "target": target[counted], **positions}
