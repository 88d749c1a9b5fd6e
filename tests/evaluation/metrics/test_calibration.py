"""Calibration over other bins: against torchmetrics, scikit-learn and numpy."""

import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve
from torch import Tensor
from torchmetrics.functional.classification import binary_calibration_error

from bayesify.evaluation import metrics
from bayesify.evaluation.metrics.calibration import binned


def make(examples: int = 3000, classes: int = 4) -> tuple[Tensor, Tensor]:
    """Probabilities and targets of an overconfident classifier."""
    logits = torch.randn(examples, classes)
    return (2 * logits).softmax(1), torch.distributions.Categorical(logits=logits).sample()


# -- small bins left out ------------------------------------------------------------------------------------
def test_bins_of_at_most_five_examples_are_left_out_and_n_stays() -> None:
    """Paper 2, D.2: 20 bins; n is the number of all examples."""
    confidence = torch.tensor([0.93] * 10 + [0.71] * 5 + [0.62] * 6, dtype=torch.float64)
    probs = torch.stack([confidence, 1 - confidence], 1)
    target = torch.tensor([0] * 10 + [1] * 5 + [0] * 3 + [1] * 3)
    kept = 10 / 21 * 0.07 + 6 / 21 * 0.12
    assert float(metrics.ece(probs, target, 20, min_size=6)) == pytest.approx(kept)
    assert float(metrics.mce(probs, target, 20, min_size=6)) == pytest.approx(0.12)
    assert float(metrics.mce(probs, target, 20)) == pytest.approx(0.71)


def test_eight_bins_as_in_paper_4() -> None:
    probs, target = make()
    assert len(metrics.reliability(probs, target, 8).size) == 8
    assert len(metrics.reliability(probs, target, 8, equal_mass=True).size) == 8


# -- bins of equal mass -------------------------------------------------------------------------------------
@pytest.mark.parametrize("num_bins", [1, 8, 15])
def test_bins_of_equal_mass_equal_sklearn(num_bins: int) -> None:
    probs, target = make()
    confidence, label = probs.double().max(1)
    correct = (label == target).numpy()
    share, mean = calibration_curve(correct, confidence.numpy(), n_bins=num_bins, strategy="quantile")
    bins = metrics.reliability(probs, target, num_bins, equal_mass=True)
    kept = bins.size > 0
    assert bins.accuracy[kept].tolist() == pytest.approx(share.tolist(), abs=1e-12)
    assert bins.confidence[kept].tolist() == pytest.approx(mean.tolist(), abs=1e-12)
    weights = bins.size[kept].numpy() / len(target)
    assert float(metrics.adaptive_ece(probs, target, num_bins)) == pytest.approx(
        float((weights * np.abs(share - mean)).sum()), abs=1e-12
    )


def test_equal_confidences_share_a_bin_and_leave_others_empty() -> None:
    confidence = torch.tensor([0.6] * 50 + [0.9] * 10)
    correct = torch.cat([torch.ones(30), torch.zeros(20), torch.ones(10)])
    bins = binned(confidence, correct, 5, equal_mass=True)
    assert sorted(bins.size.tolist()) == [0, 0, 0, 10, 50]
    shuffled = torch.randperm(60)
    again = binned(confidence[shuffled], correct[shuffled], 5, equal_mass=True)
    assert torch.equal(bins.size, again.size)
    assert again.accuracy.tolist() == pytest.approx(bins.accuracy.tolist())


def test_bins_of_equal_mass_are_of_equal_mass() -> None:
    bins = binned(torch.rand(1500), torch.ones(1500), 15, equal_mass=True)
    assert bins.size.tolist() == [100] * 15


# -- classwise ----------------------------------------------------------------------------------------------
def per_class(probs: Tensor, target: Tensor, num_bins: int) -> float:
    errors = [
        binary_calibration_error(probs[:, c].contiguous(), (target == c).long(), n_bins=num_bins, norm="l1")
        for c in range(probs.shape[1])
    ]
    return float(torch.stack(errors).mean())


@pytest.mark.parametrize("num_bins", [10, 15])
def test_classwise_ece_is_the_mean_of_torchmetrics_over_classes(num_bins: int) -> None:
    probs, target = make()
    ours = float(metrics.classwise_ece(probs, target, num_bins))
    assert ours == pytest.approx(per_class(probs, target, num_bins), abs=1e-5)


def test_classwise_ece_with_a_class_that_never_occurs() -> None:
    probs, target = make()
    target = target.clamp_max(2)
    assert float(metrics.classwise_ece(probs, target)) == pytest.approx(
        per_class(probs, target, 15), abs=1e-5
    )


def test_half_precision_is_summed_in_double() -> None:
    probs, target = make(50_000)
    half = probs.half()
    for function in (metrics.adaptive_ece, metrics.classwise_ece):
        assert float(function(half, target)) == pytest.approx(float(function(half.double(), target)))


def test_a_million_examples_equal_sklearn() -> None:
    probs, target = make(10**6, 3)
    confidence, label = probs.double().max(1)
    share, mean = calibration_curve(
        (label == target).numpy(), confidence.numpy(), n_bins=15, strategy="quantile"
    )
    expected = np.abs(share - mean).mean()  # bins of equal mass, no ties
    assert float(metrics.adaptive_ece(probs, target)) == pytest.approx(expected, abs=1e-6)


def test_no_bins_are_refused() -> None:
    with pytest.raises(ValueError, match="num_bins=0 must be a whole number of at least 1"):
        metrics.ece(*make(5), num_bins=0)
