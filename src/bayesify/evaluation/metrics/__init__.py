"""Metrics as pure functions, tallies that take a data set batch by batch, and the registry that `bf.evaluate` reads.

Adding one: a function here and a line in METRICS, or `register` from outside. Everything is summed in float64.
"""

from bayesify.evaluation.metrics.calibration import (
    Bins,
    adaptive_ece,
    classwise_ece,
    classwise_mean,
    ece,
    largest_gap,
    mce,
    mean_gap,
    reliability,
)
from bayesify.evaluation.metrics.classification import accuracy, brier, mean_confidence, nll, top5_accuracy
from bayesify.evaluation.metrics.confidence import ConfidenceSets, confidence_sets
from bayesify.evaluation.metrics.corruption import (
    corruption_errors,
    mean_corruption_error,
    relative_corruption_errors,
    relative_mean_corruption_error,
)
from bayesify.evaluation.metrics.facts import FACTS
from bayesify.evaluation.metrics.ood import aupr, auroc, fpr95
from bayesify.evaluation.metrics.registry import METRICS, Metric, register
from bayesify.evaluation.metrics.regression import (
    calibration_curve,
    calibration_error,
    crps,
    crps_each,
    crps_of,
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
from bayesify.evaluation.metrics.tally import ClassificationTally, RegressionTally
from bayesify.evaluation.metrics.uncertainty import (
    disagreement,
    expected_entropy,
    mutual_information,
    predictive_entropy,
)

METRICS |= {
    "accuracy": Metric("share of right answers", "higher", "%", function=accuracy, classification="correct"),
    "top5_accuracy": Metric(
        "right answer among the five most probable", "higher", "%", "top 5", function=top5_accuracy,
        classification="top5",
    ),
    "rmse": Metric(
        "root mean squared error, in the target's units", "lower", "", "RMSE", function=rmse,
        regression=lambda t: rmse(t.values()["mean"], t.values()["target"]),
    ),
    "nll": Metric(
        "mean −log p(target): smaller is better", "lower", "", "NLL", function=nll,
        classification="nll", regression="nll",
    ),
    "brier": Metric(
        "squared distance to the right answer, 0 to 2", "lower", "", "Brier", function=brier, classification="brier"
    ),
    "ece": Metric(
        "mean gap between confidence and accuracy", "lower", "%", "ECE", function=ece,
        classification=lambda t: mean_gap(t.reliability()),
    ),
    "mce": Metric(
        "largest gap between confidence and accuracy", "lower", "%", "MCE", function=mce,
        classification=lambda t: largest_gap(t.reliability()),
    ),
    "adaptive_ece": Metric(
        "the same over bins of equally many examples", "lower", "%", "aECE", function=adaptive_ece,
        classification=lambda t: mean_gap(t.reliability(equal_mass=True)),
    ),
    "classwise_ece": Metric(
        "the same for each class, averaged", "lower", "%", "cwECE", function=classwise_ece,
        classification=lambda t: classwise_mean(t.classwise),
    ),
    "aurc": Metric(
        "mean error when only the surest answers count", "lower", "%", "AURC", function=aurc,
        classification=lambda t: t.risk_coverage().risk.mean(),
    ),
    "confidence": Metric(
        "mean probability of the predicted class", None, "%", function=mean_confidence, classification="confidence"
    ),
    "disagreement": Metric(
        "pairs of draws with different answers", None, "%", function=disagreement, classification="disagreement"
    ),
    "entropy": Metric(
        "mean uncertainty of the predictions, in nats", function=predictive_entropy, classification="entropy"
    ),
    "epistemic": Metric(
        "part of it from the draws' disagreement, in nats", function=mutual_information, classification="epistemic"
    ),
    "crps": Metric(
        "distance of the distribution to the target", "lower", "", "CRPS", function=crps, regression="crps"
    ),
    "coverage90": Metric(
        "targets inside the central 90 % interval", None, "%", "in 90 %", function=interval_coverage,
        regression="coverage90",
    ),
    "std": Metric("mean predicted std, in the target's units", function=sharpness, regression="std"),
    "calibration_error": Metric(
        "mean gap of predicted and observed quantiles", "lower", "%", "cal. error", function=calibration_error,
        regression=lambda t: calibration_error(t.values()["level"]),
    ),
    "auroc": Metric(
        "telling unknown inputs apart; 50 % is chance", "higher", "%", "AUROC", function=auroc, ood=True
    ),
    "aupr": Metric(
        "the same as average precision, unknown positive", "higher", "%", "AUPR", function=aupr, ood=True
    ),
    "fpr95": Metric("known inputs flagged when 95 % of unknown are", "lower", "%", "FPR95", function=fpr95, ood=True),
    "mce_corruption": Metric(
        "mean corruption error against the reference", "lower", "%", "mCE", function=mean_corruption_error
    ),
    "rmce_corruption": Metric(
        "the same relative to clean inputs", "lower", "%", "rmCE", function=relative_mean_corruption_error
    ),
}  # fmt: skip
#: what comes with the package
BUILT_IN = frozenset({*METRICS, *FACTS})

__all__ = [
    "BUILT_IN",
    "METRICS",
    "Bins",
    "ClassificationTally",
    "ConfidenceSets",
    "Metric",
    "RegressionTally",
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
    "crps_of",
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
    "register",
    "relative_corruption_errors",
    "relative_mean_corruption_error",
    "reliability",
    "risk_at_coverage",
    "risk_coverage",
    "rmse",
    "sharpness",
    "top5_accuracy",
]
