"""Conformal sets and intervals: calibrated on the validation part, measured on the test part and under shift."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bayesify.evaluation.conformal import fitted, unfitted
from bayesify.evaluation.evaluate import counted_targets
from bayesify.likelihoods.shapes import match_real
from bayesify.predict.conformal import ConformalRule
from bayesify.predict.predictive import Predictive
from bayesify.studies.corruptions import COMMON, rotate
from bayesify.studies.suites.corruption import corrupted
from bayesify.studies.suites.subject import Outcome, Subject, Unsuitable

COVERAGES = (0.8, 0.9, 0.95)
SHOWN = 0.9  # of the thresholds by class, and under shift
SEVERITY = 3
#: name -> images in their place, by (subject, images, number of the batch)
SHIFTS: dict[str, Callable[[Subject, Tensor, int], Tensor]] = {
    **{
        f"{name}_{SEVERITY}": partial(
            lambda c, s, x, number: corrupted(s, x, number, c, SEVERITY), COMMON.index(name)
        )
        for name in ("gaussian_noise", "motion_blur", "frost", "contrast")
    },
    "rotated_30": lambda subject, images, number: rotate(images, 30),
}
#: by task, the default first
SCORES = {"classification": ("aps", "lac"), "regression": ("std", "absolute", "quantile")}

Parts = list[tuple[Predictive, Tensor]]


def conformal_suite(subject: Subject) -> Outcome:
    """Coverage and size of conformal sets (or intervals) for three nominal coverages; worst class; coverage of images
    that are corrupted or rotated, where the guarantee does not hold."""
    if subject.val is None or not len(subject.val):
        raise Unsuitable("suite 'conformal' calibrates on validation data: train with --val-fraction 0.2")
    val, test = _parts(subject, subject.batches(subject.val)), _parts(subject, subject.batches(subject.test))
    likelihood = subject.model.likelihood
    metrics: dict[str, float] = {}
    arrays = {"nominal": np.array(COVERAGES)}
    for score in SCORES[likelihood.task]:
        try:
            rules = [fitted(unfitted(likelihood, score, coverage), val) for coverage in COVERAGES]
        except ValueError as error:
            raise Unsuitable(f"suite 'conformal': {error}") from error
        found = [measured(rule, test) for rule in rules]
        for rule, numbers in zip(rules, found, strict=True):
            metrics |= {f"{score}_{rule.coverage:g}/{key}": value for key, value in numbers.items()}
        sizes = "interval_width" if subject.regression else "set_size"
        arrays |= {f"{score}_{key}": np.array([n[key] for n in found]) for key in ("covered", sizes)}
    if not subject.regression:
        by_class = fitted(unfitted(likelihood, "aps", SHOWN, by_class=True), val, by_class=True)
        metrics |= {f"by_class_{SHOWN:g}/{key}": value for key, value in measured(by_class, test).items()}
        metrics |= _shifted(subject, fitted(unfitted(likelihood, "aps", SHOWN), val))
    metrics["num_calibration"] = float(sum(len(prediction) for prediction, _ in val))
    return Outcome({**metrics, "num_data": float(len(subject.test))}, arrays)


def _parts(subject: Subject, batches: Iterable[tuple[Tensor, Tensor]]) -> Parts:
    """Predictions, all with the same draws, beside their targets, in the target's units."""
    options = {"keep_samples": True} if subject.regression else {}
    parts: Parts = []
    for x, y in batches:
        prediction = subject.model.predict(x, subject.num_draws, generator=subject.generator(), **options)
        target = subject.normalisation.original_mean(y) if subject.regression else y
        parts.append((prediction.to("cpu"), target.cpu()))
    return parts


def measured(rule: ConformalRule, parts: Parts) -> dict[str, float]:
    """The share of targets that are covered, the mean size or width, and the coverage of the worst class."""
    if parts[0][0].likelihood.task == "regression":
        inside, widths = [], []
        for prediction, target in parts:
            low, high = replace(prediction, conformal=rule).interval
            y = match_real(prediction.mean, target, values=True)
            inside.append(((low <= y) & (y <= high)).flatten())
            widths.append((high - low).flatten())
        return {
            "covered": float(torch.cat(inside).double().mean()),
            "interval_width": float(torch.cat(widths).double().mean()),
        }
    sets, labels = [], []
    for prediction, target in parts:
        label, counted = counted_targets(prediction, target)
        sets.append(replace(prediction, conformal=rule).sets[counted])
        labels.append(label[counted])
    held, y = torch.cat(sets), torch.cat(labels)
    covered = held.gather(1, y[:, None])[:, 0].double()
    return {
        "covered": float(covered.mean()),
        "set_size": float(held.double().sum(1).mean()),
        "covered_worst": min(float(covered[y == c].mean()) for c in y.unique()),
    }


def _shifted(subject: Subject, rule: ConformalRule) -> dict[str, float]:
    """The same of changed test images, as "gaussian_noise_3/covered"; nothing where inputs are no images."""
    metrics: dict[str, float] = {}
    try:
        batches = [*subject.images("conformal")]
    except Unsuitable:
        return metrics
    for name, change in SHIFTS.items():
        changed = ((subject.from_images(change(subject, x, i)), y) for i, (x, y) in enumerate(batches))
        numbers = measured(rule, _parts(subject, changed))
        metrics |= {f"{name}/{key}": value for key, value in numbers.items()}
    return metrics
