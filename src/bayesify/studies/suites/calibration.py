"""How good the probabilities are on the test part, raw and after temperature scaling."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify.evaluation.calibrate import Calibrated, best_calibration
from bayesify.evaluation.evaluate import evaluate
from bayesify.evaluation.metrics import ClassificationTally
from bayesify.evaluation.metrics.calibration import largest_gap, mean_gap
from bayesify.evaluation.metrics.regression import calibration_curve
from bayesify.studies.suites.subject import Outcome, Subject

NUM_EXAMPLES = 8
CURVE_POINTS = 200
LARGEST_PICTURE = 64


def calibration_suite(subject: Subject) -> Outcome:
    """Accuracy, NLL, Brier, calibration errors, risk–coverage, confidence sets; regression: RMSE, CRPS, bands."""
    if subject.regression:
        return _regression(subject)
    tally = subject.tally()
    values = tally.values()
    metrics = {
        **tally.metrics(),
        **_other_bins(tally),
        "num_bins": float(subject.num_bins),
        "num_data": float(len(subject.test)),
        "num_draws": float(subject.num_draws),
    }
    arrays = {**_curves(tally), **_per_example(values), **_examples(subject, values)}
    if subject.val is not None and len(subject.val):
        cooled, curve = _tempered(subject)
        metrics |= cooled
        arrays |= curve
    return Outcome(metrics, arrays)


def _other_bins(tally: ClassificationTally) -> dict[str, float]:
    """The papers' choices: 20 bins without those of at most 5 examples (paper 2), 8 of equal mass (paper 4)."""
    twenty, eight = tally.reliability(num_bins=20), tally.reliability(num_bins=8, equal_mass=True)
    return {
        "ece_20bins": float(mean_gap(twenty, min_size=6)),
        "mce_20bins": float(largest_gap(twenty, min_size=6)),
        "ece_8bins": float(mean_gap(eight)),
    }


def _curves(tally: ClassificationTally) -> dict[str, np.ndarray]:
    risk = tally.risk_coverage()
    sets = tally.confidence_sets(torch.linspace(0, 1, 51, dtype=torch.float64))
    kept = torch.linspace(0, len(risk.risk) - 1, min(CURVE_POINTS, len(risk.risk))).long()
    return {
        **_bins(tally, "bin"),
        "coverage": risk.coverage[kept].numpy(),
        "risk": risk.risk[kept].numpy(),
        "set_threshold": sets.threshold.numpy(),
        "set_size": sets.size.numpy(),
        "set_accuracy": sets.accuracy.numpy(),
    }


def _bins(tally: ClassificationTally, prefix: str) -> dict[str, np.ndarray]:
    """The reliability diagram: size, confidence and accuracy of every bin."""
    bins = tally.reliability()
    return {f"{prefix}_{key}": getattr(bins, key).numpy() for key in ("size", "confidence", "accuracy")}


def _per_example(values: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """For tests that pair two models example by example."""
    names = {"correct": "accuracy", "nll": "nll", "brier": "brier", "entropy": "entropy"}
    return {f"each_{key}": values[name].float().numpy() for name, key in names.items()}


def _examples(subject: Subject, values: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """The most uncertain and the most confidently wrong test images, with their predictions."""
    inputs = subject.test.inputs
    if len(inputs.shape) != 4 or len(values["target"]) != len(subject.test):
        return {}
    wrong = torch.where(values["correct"] > 0, -torch.inf, values["confidence"])
    found: dict[str, np.ndarray] = {}
    for name, score in (("uncertain", values["entropy"]), ("wrong", wrong)):
        index = score.argsort(descending=True)[:NUM_EXAMPLES]
        index = index[score[index].isfinite()]
        if not len(index):
            continue
        part = subject.test.take(index)
        raw = torch.as_tensor(part.inputs[:])
        found[f"{name}_images"] = thumbnails(raw)
        found[f"{name}_probs"] = subject.predict(subject.normalised(raw)).probs.float().cpu().numpy()
        found[f"{name}_targets"] = part.targets.numpy()
        found[f"{name}_index"] = index.numpy()
    return found


def thumbnails(images: Tensor) -> np.ndarray:
    """Images as bytes (N, H, W, C), at most LARGEST_PICTURE pixels a side."""
    x = images.float() / 255 if images.dtype == torch.uint8 else images.float()
    side = max(x.shape[-2:])
    if side > LARGEST_PICTURE:
        size = [max(1, round(s * LARGEST_PICTURE / side)) for s in x.shape[-2:]]
        x = torch.nn.functional.interpolate(x, size=size, mode="area")
    return (255 * x.clamp(0, 1)).round().byte().permute(0, 2, 3, 1).cpu().numpy()


def _tempered(subject: Subject) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Metrics after temperature scaling on the validation part, as "tempered/…"."""
    assert subject.val is not None
    batches, generator = subject.batches(subject.val), subject.generator()
    temperature = best_calibration(subject.model, batches, subject.num_draws, generator)
    tally = subject.tally(Calibrated(subject.model, temperature))
    wanted = ("nll", "brier", "ece", "mce", "adaptive_ece", "classwise_ece")
    metrics = {f"tempered/{key}": value for key, value in tally.metrics().items() if key in wanted}
    return {"temperature": temperature, **metrics}, _bins(tally, "tempered_bin")


def _regression(subject: Subject) -> Outcome:
    model: Any = subject.model
    original = subject.normalisation.original_mean  # the units of the model's predictions
    batches = [(x, original(y)) for x, y in subject.batches(subject.test)]
    metrics = evaluate(model, batches, subject.num_draws, generator=subject.generator())
    generator, parts = subject.generator(), []
    for x, y in batches:
        prediction = model.predict(x, subject.num_draws, generator=generator)
        target = y.reshape(prediction.mean.shape)
        level = prediction.level(target)
        parts.append([t.flatten().cpu() for t in (prediction.mean, prediction.std, target, level)])
    mean, std, target, level = (torch.cat(part) for part in zip(*parts, strict=True))
    curve = calibration_curve(level)
    arrays = {"mean": mean, "std": std, "target": target, "level": curve.level, "share": curve.share}
    inputs = torch.as_tensor(subject.test.inputs[:])
    if inputs[0].numel() == 1:  # one dimension: a band can be drawn
        arrays["input"] = inputs.flatten()
    metrics["num_draws"] = float(subject.num_draws)
    return Outcome(metrics, {k: v.numpy() for k, v in arrays.items()})
