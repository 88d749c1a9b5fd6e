"""Metrics against torchmetrics, scikit-learn and cases computed by hand."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch import Tensor
from torchmetrics.functional import accuracy as torchmetrics_accuracy
from torchmetrics.functional import mean_squared_error
from torchmetrics.functional.classification import multiclass_calibration_error

from bayesify.evaluation import metrics

EXAMPLES, CLASSES = 2000, 5
FLOAT32_SUM = 1e-5  # torchmetrics adds in float32


def make(examples: int = EXAMPLES, classes: int = CLASSES) -> tuple[Tensor, Tensor]:
    """Probabilities and targets of an overconfident classifier."""
    logits = torch.randn(examples, classes)
    target = torch.distributions.Categorical(logits=logits).sample()
    return (2 * logits).softmax(1), target


def summing_to_one(probs: Tensor) -> Tensor:
    """In float64: scikit-learn warns of float32 sums."""
    return probs.double() / probs.double().sum(1, keepdim=True)


# -- classification -----------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore")  # netcal's imports warn
@pytest.mark.parametrize("num_bins", [8, 15, 20])
def test_calibration_errors_equal_netcal(num_bins: int) -> None:
    """netcal is no dependency of the tests: `pip install --no-deps netcal`."""
    netcal = pytest.importorskip("netcal.metrics")
    probs, target = make()
    pair = summing_to_one(probs).numpy(), target.numpy()
    ece, mce = netcal.ECE(num_bins).measure(*pair), netcal.MCE(num_bins).measure(*pair)
    probs = summing_to_one(probs)
    assert float(metrics.ece(probs, target, num_bins)) == pytest.approx(ece, abs=1e-12)
    assert float(metrics.mce(probs, target, num_bins)) == pytest.approx(mce, abs=1e-12)


def test_accuracy_equals_torchmetrics_and_sklearn() -> None:
    probs, target = make()
    value = float(metrics.accuracy(probs, target))
    assert value == pytest.approx(sklearn_metrics.accuracy_score(target, probs.argmax(1)), abs=1e-12)
    other = torchmetrics_accuracy(probs, target, task="multiclass", num_classes=CLASSES, average="micro")
    assert value == pytest.approx(float(other), abs=1e-6)


def test_nll_equals_sklearn() -> None:
    probs, target = make()
    expected = sklearn_metrics.log_loss(target, summing_to_one(probs).numpy(), labels=range(CLASSES))
    assert float(metrics.nll(probs, target)) == pytest.approx(expected, rel=1e-6)


def test_brier_equals_sklearn() -> None:
    probs, target = make()
    probs = summing_to_one(probs)
    expected = sklearn_metrics.brier_score_loss(
        target, probs.numpy(), labels=range(CLASSES), scale_by_half=False
    )
    assert float(metrics.brier(probs, target)) == pytest.approx(expected, rel=1e-10)


def test_brier_lies_between_zero_and_two() -> None:
    probs, target = torch.eye(3), torch.arange(3)
    assert float(metrics.brier(probs, target)) == 0
    assert float(metrics.brier(probs, (target + 1) % 3)) == 2


def test_a_class_that_never_occurs() -> None:
    probs, target = make()
    target = target.clamp_max(CLASSES - 2)
    expected = sklearn_metrics.log_loss(target, summing_to_one(probs).numpy(), labels=range(CLASSES))
    assert float(metrics.nll(probs, target)) == pytest.approx(expected, rel=1e-6)
    other = multiclass_calibration_error(probs, target, CLASSES, n_bins=15, norm="l1")
    assert float(metrics.ece(probs, target)) == pytest.approx(float(other), abs=FLOAT32_SUM)


def test_an_impossible_target_costs_a_finite_nll() -> None:
    value = float(metrics.nll(torch.tensor([[1.0, 0.0]]), torch.tensor([1])))
    assert value == pytest.approx(-math.log(torch.finfo(torch.float32).tiny))


# -- calibration --------------------------------------------------------------------------------------
@pytest.mark.parametrize("num_bins", [1, 10, 15, 20])
def test_calibration_errors_equal_torchmetrics(num_bins: int) -> None:
    probs, target = make()
    for ours, norm in ((metrics.ece, "l1"), (metrics.mce, "max")):
        other = multiclass_calibration_error(probs, target, CLASSES, n_bins=num_bins, norm=norm)
        assert float(ours(probs, target, num_bins)) == pytest.approx(float(other), abs=FLOAT32_SUM)


def test_the_default_has_fifteen_bins() -> None:
    probs, target = make()
    assert metrics.ece(probs, target) == metrics.ece(probs, target, 15)
    assert metrics.mce(probs, target) == metrics.mce(probs, target, 15)
    assert len(metrics.reliability(probs, target).size) == 15


def binary(*confidences: float) -> Tensor:
    """Two classes; the first is predicted with these confidences."""
    first = torch.tensor(confidences, dtype=torch.float64)
    return torch.stack([first, 1 - first], 1)


def test_bins_are_open_below_and_closed_above() -> None:
    probs = binary(0.5, 0.75, 0.7500001, 1.0)
    assert metrics.reliability(probs, torch.zeros(4).long(), num_bins=4).size.tolist() == [0, 1, 1, 2]


def test_every_edge_belongs_to_the_bin_below_it() -> None:
    """Confidences j / 15 for all j that two classes allow; float64 holds the edges themselves."""
    edges = torch.linspace(0, 1, 16, dtype=torch.float64)[8:]
    size = metrics.reliability(torch.stack([edges, 1 - edges], 1), torch.zeros(8).long()).size
    assert size.tolist() == [0] * 7 + [1] * 8


def test_ties_at_edges_by_hand() -> None:
    """Both in (0.5, 0.75]: gap |1/2 − 0.7|; and two in (0.75, 1] with gap |1 − 0.9|."""
    probs = binary(0.75, 0.65, 1.0, 0.8)
    target = torch.tensor([0, 1, 0, 0])
    assert float(metrics.ece(probs, target, 4)) == pytest.approx(0.5 * 0.2 + 0.5 * 0.1)
    assert float(metrics.mce(probs, target, 4)) == pytest.approx(0.2)


def test_empty_bins_count_nothing() -> None:
    probs, target = binary(0.95, 0.95), torch.tensor([0, 1])
    bins = metrics.reliability(probs, target)
    assert bins.size.sum() == 2
    assert (bins.size > 0).sum() == 1
    assert float(metrics.ece(probs, target)) == pytest.approx(0.45)
    assert float(metrics.mce(probs, target)) == pytest.approx(0.45)


def test_a_certain_and_correct_classifier_is_calibrated() -> None:
    assert float(metrics.ece(torch.eye(4), torch.arange(4))) == 0
    assert float(metrics.mce(torch.eye(4), torch.arange(4))) == 0


def test_the_reliability_curve_by_numpy() -> None:
    probs, target = make()
    confidence, label = probs.double().max(1)
    index = np.ceil(confidence.numpy() * 15).astype(int) - 1
    bins = metrics.reliability(probs, target)
    for b in range(15):
        inside = index == b
        assert bins.size[b] == inside.sum()
        if inside.any():
            assert float(bins.confidence[b]) == pytest.approx(confidence.numpy()[inside].mean(), rel=1e-12)
            correct = (label == target).numpy()[inside].mean()
            assert float(bins.accuracy[b]) == pytest.approx(correct, rel=1e-12)


# -- precision and size -------------------------------------------------------------------------------
def test_float16_probabilities_are_added_in_float64() -> None:
    """float16 rounds a probability by at most 2⁻¹¹ of it; sums of 50,000 float16 numbers would overflow."""
    probs, target = make(50_000)
    half = probs.half()
    for name in ("accuracy", "nll", "brier", "ece", "mce"):
        value = metrics.METRICS[name](half, target)
        exact = metrics.METRICS[name](half.double(), target)
        assert value.dtype == torch.float64
        assert float(value) == pytest.approx(float(exact), rel=1e-12)


def test_a_million_examples_equal_torchmetrics_and_sklearn() -> None:
    probs, target = make(10**6, 3)
    other = multiclass_calibration_error(probs, target, 3, n_bins=15, norm="l1")
    assert float(metrics.ece(probs, target)) == pytest.approx(float(other), abs=1e-4)
    picked = probs.double().gather(1, target[:, None]).log().numpy()
    assert float(metrics.nll(probs, target)) == pytest.approx(-float(np.mean(picked)), rel=1e-10)
    expected = sklearn_metrics.accuracy_score(target, probs.argmax(1))
    assert float(metrics.accuracy(probs, target)) == pytest.approx(expected, abs=1e-12)


def test_the_ece_of_a_calibrated_classifier_is_small_for_many_examples() -> None:
    """Correct with its own confidence: a bin's gap is at most z √(1/4 / n_b), so by Cauchy–Schwarz
    ECE ≤ z √(bins / (4 n)), z for a failure rate of 1e-6 shared by 15 bins."""
    confidence = 0.5 + 0.5 * torch.rand(10**6)
    target = (torch.rand(10**6) > confidence).long()
    value = metrics.ece(torch.stack([confidence, 1 - confidence], 1), target)
    assert float(value) < 5.4 * math.sqrt(15 / (4 * 10**6))


# -- regression ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 3)])
def test_rmse_equals_torchmetrics_and_sklearn(shape: tuple[int, ...]) -> None:
    mean, target = torch.randn(shape), torch.randn(shape)
    value = float(metrics.rmse(mean, target))
    other = mean_squared_error(mean.flatten(), target.flatten(), squared=False)
    assert value == pytest.approx(float(other), rel=1e-5)
    expected = math.sqrt(sklearn_metrics.mean_squared_error(target.double(), mean.double()))
    assert value == pytest.approx(expected, rel=1e-12)


def test_rmse_takes_targets_without_the_last_size_of_one() -> None:
    mean, target = torch.randn(50, 1), torch.randn(50)
    assert float(metrics.rmse(mean, target)) == float(metrics.rmse(mean, target[:, None]))


def test_rmse_refuses_targets_of_another_shape() -> None:
    with pytest.raises(ValueError, match="shape"):
        metrics.rmse(torch.randn(2, 3), torch.randn(3, 2))
