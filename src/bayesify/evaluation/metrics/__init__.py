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
    "accuracy": Metric(accuracy, "share of right answers", "higher", "%", classification="correct"),
    "top5_accuracy": Metric(top5_accuracy, "right answer among the five most probable", "higher", "%", "top 5",
                            classification="top5"),
    "rmse": Metric(rmse, "root mean squared error, in the target's units", "lower", "", "RMSE",
                   regression=lambda t: rmse(t.values()["mean"], t.values()["target"])),
    "nll": Metric(nll, "mean −log p(target): smaller is better", "lower", "", "NLL",
                  classification="nll", regression="nll"),
    "brier": Metric(brier, "squared distance to the right answer, 0 to 2", "lower", "", "Brier",
                    classification="brier"),
    "ece": Metric(ece, "mean gap between confidence and accuracy", "lower", "%", "ECE",
                  classification=lambda t: mean_gap(t.reliability())),
    "mce": Metric(mce, "largest gap between confidence and accuracy", "lower", "%", "MCE",
                  classification=lambda t: largest_gap(t.reliability())),
    "adaptive_ece": Metric(adaptive_ece, "the same over bins of equally many examples", "lower", "%", "aECE",
                           classification=lambda t: mean_gap(t.reliability(equal_mass=True))),
    "classwise_ece": Metric(classwise_ece, "the same for each class, averaged", "lower", "%", "cwECE",
                            classification=lambda t: classwise_mean(t.classwise)),
    "aurc": Metric(aurc, "mean error when only the surest answers count", "lower", "%", "AURC",
                   classification=lambda t: t.risk_coverage().risk.mean()),
    "confidence": Metric(mean_confidence, "mean probability of the predicted class", None, "%",
                         classification="confidence"),
    "disagreement": Metric(disagreement, "pairs of draws with different answers", None, "%",
                           classification="disagreement"),
    "entropy": Metric(predictive_entropy, "mean uncertainty of the predictions, in nats", classification="entropy"),
    "epistemic": Metric(mutual_information, "part of it from the draws' disagreement, in nats",
                        classification="epistemic"),
    "crps": Metric(crps, "distance of the distribution to the target", "lower", "", "CRPS", regression="crps"),
    "coverage90": Metric(interval_coverage, "targets inside the central 90 % interval", None, "%", "in 90 %",
                         regression="coverage90"),
    "std": Metric(sharpness, "mean predicted std, in the target's units", regression="std"),
    "calibration_error": Metric(calibration_error, "mean gap of predicted and observed quantiles", "lower", "%",
                                "cal. error", regression=lambda t: calibration_error(t.values()["level"])),
    "auroc": Metric(auroc, "telling unknown inputs apart; 50 % is chance", "higher", "%", "AUROC", ood=True),
    "aupr": Metric(aupr, "the same as average precision, unknown positive", "higher", "%", "AUPR", ood=True),
    "fpr95": Metric(fpr95, "known inputs flagged when 95 % of unknown are", "lower", "%", "FPR95", ood=True),
    "mce_corruption": Metric(mean_corruption_error, "mean corruption error against the reference", "lower", "%",
                             "mCE"),
    "rmce_corruption": Metric(relative_mean_corruption_error, "the same relative to clean inputs", "lower", "%",
                              "rmCE"),
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
