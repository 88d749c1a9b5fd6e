"""Risk against coverage, by numpy and by averaging over all orders of ties."""

import itertools

import numpy as np
import pytest
import torch

from bayesify.evaluation import metrics


def by_numpy(uncertainty: np.ndarray, loss: np.ndarray) -> np.ndarray:
    ordered = loss[np.argsort(uncertainty, kind="stable")]
    return np.cumsum(ordered) / np.arange(1, len(loss) + 1)


def test_the_curve_equals_numpy() -> None:
    uncertainty, loss = torch.rand(400).double(), (torch.rand(400) < 0.3).double()
    curve = metrics.risk_coverage(uncertainty, loss)
    expected = by_numpy(uncertainty.numpy(), loss.numpy())
    assert curve.risk.tolist() == pytest.approx(expected.tolist(), abs=1e-12)
    assert curve.coverage[-1] == 1
    assert float(curve.risk[-1]) == pytest.approx(float(loss.mean()))
    assert float(metrics.aurc(uncertainty, loss)) == pytest.approx(expected.mean(), abs=1e-12)


def test_ties_count_as_the_mean_over_all_their_orders() -> None:
    uncertainty = torch.tensor([0.1, 0.5, 0.5, 0.5, 0.9])
    loss = torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0])
    middle = list(itertools.permutations(range(1, 4)))
    risks = [by_numpy(np.arange(5), loss[[0, *order, 4]].numpy()) for order in middle]
    curve = metrics.risk_coverage(uncertainty, loss)
    assert curve.risk.tolist() == pytest.approx(np.mean(risks, 0).tolist())


def test_points_of_the_curve() -> None:
    uncertainty, loss = torch.arange(10).float(), torch.tensor([0.0] * 8 + [1, 1])
    assert float(metrics.risk_at_coverage(uncertainty, loss, 0.8)) == 0
    assert float(metrics.risk_at_coverage(uncertainty, loss, 0.85)) == pytest.approx(1 / 9)
    assert float(metrics.coverage_at_risk(uncertainty, loss, 0.05)) == pytest.approx(0.8)
    assert float(metrics.coverage_at_risk(uncertainty, torch.ones(10), 0.05)) == 0


def test_a_million_half_precision_examples() -> None:
    uncertainty, loss = torch.rand(10**6).half(), (torch.rand(10**6) < 0.1).half()
    value = float(metrics.aurc(uncertainty, loss))
    assert value == pytest.approx(float(metrics.aurc(uncertainty.double(), loss.double())), rel=1e-12)
    assert value == pytest.approx(0.1, abs=0.02)  # no relation between the two


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"uncertainty \(3,\) and loss \(2,\)"):
        metrics.aurc(torch.rand(3), torch.rand(2))
    with pytest.raises(ValueError, match="uncertainty holds NaN"):
        metrics.aurc(torch.tensor([float("nan")]), torch.rand(1))
    with pytest.raises(ValueError, match=r"coverage=1.5 must be a number of at least 0 and at most 1"):
        metrics.risk_at_coverage(torch.rand(3), torch.rand(3), 1.5)
