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
    entropy, epistemic uncertainty and confidence. Regression: rmse, nll (mixture over draws), mean std.
    """
    device = next(model.parameters()).device
    means, targets, rows = [], [], []
    for batch in loader:
        target = target_of(batch)
        regression = model.likelihood.task == "regression"
        prediction = model.predict(
            to_device(inputs_of(batch), device), num_draws, keep_samples=regression, generator=generator
        )
        rows.append(_row(prediction, target.to(prediction.mean.device)))
        means.append(_flat(prediction, prediction.mean).cpu())
        targets.append(target.cpu())
    if not rows:
        raise ValueError("the loader is empty: nothing to evaluate")
    mean, target = torch.cat(means), torch.cat(targets)
    sizes = torch.tensor([float(len(t)) for t in targets], dtype=torch.float64)
    result = {
        key: float((torch.stack([r[key] for r in rows]) * sizes).sum() / sizes.sum()) for key in rows[0]
    }
    if model.likelihood.task == "regression":
        return {"rmse": float(metrics.rmse(mean, target)), **result, "num_data": float(len(target))}
    return {**_classification(model, mean, target, num_bins), **result, "num_data": float(len(target))}


def _classification(model: Any, probs: Tensor, target: Tensor, num_bins: int) -> dict[str, float]:
    target = target.reshape(-1).long()
    ignored = getattr(model.likelihood, "ignore_index", None)
    if ignored is not None:
        probs, target = probs[target != ignored], target[target != ignored]
    return {
        "accuracy": float(metrics.accuracy(probs, target)),
        "nll": float(metrics.nll(probs, target)),
        "brier": float(metrics.brier(probs, target)),
        "ece": float(metrics.ece(probs, target, num_bins)),
        "mce": float(metrics.mce(probs, target, num_bins)),
        "num_bins": float(num_bins),
    }


def _row(prediction: Predictive, target: Tensor) -> dict[str, Tensor]:
    """Means over one batch."""
    if prediction.likelihood.task == "regression":
        parts = {"nll": -prediction.log_prob(target), "std": prediction.std}
    else:
        parts = {
            "entropy": prediction.entropy,
            "epistemic": prediction.epistemic,
            "confidence": prediction.confidence,
        }
    return {key: value.double().mean().cpu() for key, value in parts.items()}


def _flat(prediction: Predictive, probs: Tensor) -> Tensor:
    """Probabilities as (examples or positions, classes); regression means as they are."""
    if prediction.likelihood.task == "regression":
        return probs
    if prediction.likelihood.name == "bernoulli":
        return torch.stack([1 - probs, probs], -1).reshape(-1, 2)
    return probs.movedim(prediction._class_dim, -1).reshape(-1, probs.shape[prediction._class_dim])
