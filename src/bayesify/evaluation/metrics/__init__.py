"""Metrics as pure functions, and tallies that take a data set batch by batch.

Adding one: a function here, a line in METRICS and one in facts.FACTS. Everything is summed in float64.
"""

from collections.abc import Callable

from torch import Tensor

from bayesify.evaluation.metrics.calibration import Bins, adaptive_ece, classwise_ece, ece, mce, reliability
from bayesify.evaluation.metrics.classification import accuracy, brier, nll, top5_accuracy
from bayesify.evaluation.metrics.confidence import ConfidenceSets, confidence_sets
from bayesify.evaluation.metrics.corruption import (
    corruption_errors,
    mean_corruption_error,
    relative_corruption_errors,
    relative_mean_corruption_error,
)
from bayesify.evaluation.metrics.ood import aupr, auroc, fpr95
from bayesify.evaluation.metrics.regression import (
    calibration_curve,
    calibration_error,
    crps,
    crps_each,
    interval_coverage,
    lpd,
    quantile_levels,
    rmse,
    sharpness,
)
from bayesify.evaluation.metrics.selective import (
    RiskCoverage,
    aurc,
    coverage_at_risk,
    excess_aurc,
    risk_at_coverage,
    risk_coverage,
)
from bayesify.evaluation.metrics.tally import ClassificationTally
from bayesify.evaluation.metrics.uncertainty import (
    disagreement,
    expected_entropy,
    mutual_information,
    predictive_entropy,
)

#: name -> function; arguments as its docstring says: (probs, target), (mean, target), (inside, outside), …
METRICS: dict[str, Callable[..., Tensor]] = {
    "accuracy": accuracy,
    "top5_accuracy": top5_accuracy,
    "nll": nll,
    "brier": brier,
    "ece": ece,
    "mce": mce,
    "adaptive_ece": adaptive_ece,
    "classwise_ece": classwise_ece,
    "aurc": aurc,
    "auroc": auroc,
    "aupr": aupr,
    "fpr95": fpr95,
    "mce_corruption": mean_corruption_error,
    "rmce_corruption": relative_mean_corruption_error,
    "disagreement": disagreement,
    "rmse": rmse,
    "lpd": lpd,
    "crps": crps,
    "sharpness": sharpness,
    "calibration_error": calibration_error,
}

__all__ = [
    "METRICS",
    "Bins",
    "ClassificationTally",
    "ConfidenceSets",
    "RiskCoverage",
    "accuracy",
    "adaptive_ece",
    "aupr",
    "auroc",
    "aurc",
    "brier",
    "calibration_curve",
    "calibration_error",
    "classwise_ece",
    "confidence_sets",
    "corruption_errors",
    "coverage_at_risk",
    "crps",
    "crps_each",
    "disagreement",
    "ece",
    "excess_aurc",
    "expected_entropy",
    "fpr95",
    "interval_coverage",
    "lpd",
    "mce",
    "mean_corruption_error",
    "mutual_information",
    "nll",
    "predictive_entropy",
    "quantile_levels",
    "relative_corruption_errors",
    "relative_mean_corruption_error",
    "reliability",
    "risk_at_coverage",
    "risk_coverage",
    "rmse",
    "sharpness",
    "top5_accuracy",
]
