"""Regression metrics against scipy and against integrals of the definition."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from bayesify.evaluation import metrics
from bayesify.evaluation.metrics.regression import log_density


def mixture(draws: int = 4, examples: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(draws, examples), 0.1 + torch.rand(draws, examples), torch.randn(examples)


def test_lpd_equals_scipy() -> None:
    mean, var, target = mixture()
    density = stats.norm(mean.double(), var.double().sqrt()).pdf(target.double()).mean(0)
    assert float(metrics.lpd(mean, var, target)) == pytest.approx(float(np.log(density).mean()), rel=1e-9)
    single = stats.norm(mean[0].double(), var[0].double().sqrt()).logpdf(target.double())
    assert log_density(mean[0], var[0], target).tolist() == pytest.approx(single.tolist(), rel=1e-9)


def test_lpd_of_paper_2_has_the_floor_of_its_fixed_precision() -> None:
    """τ = 0.1: −½ log(2π · 10) = −2.07 where every mean is exact (Kin8nm and Naval of Table 13)."""
    y = torch.randn(10)
    assert float(metrics.lpd(y, torch.full((10,), 10.0), y)) == pytest.approx(-2.0702, abs=1e-4)


def test_crps_is_the_integral_of_its_definition() -> None:
    mean, var, target = mixture(3, 4)
    m, s = mean.double().numpy(), var.double().sqrt().numpy()
    for i in range(4):

        def cdf(z: float, i: int = i) -> float:
            return float(stats.norm(m[:, i], s[:, i]).cdf(z).mean())

        y = float(target[i])
        below = integrate.quad(lambda z, f=cdf: f(z) ** 2, y - 20, y, limit=200)[0]
        above = integrate.quad(lambda z, f=cdf: (1 - f(z)) ** 2, y, y + 20, limit=200)[0]
        one = metrics.crps(mean[:, i : i + 1], var[:, i : i + 1], target[i : i + 1])
        assert float(one) == pytest.approx(below + above, rel=1e-6)


def test_crps_of_one_normal_is_the_closed_form() -> None:
    mean, var, target = torch.randn(50).double(), 0.1 + torch.rand(50).double(), torch.randn(50).double()
    std = var.sqrt()
    z = ((target - mean) / std).numpy()
    each = std.numpy() * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    assert float(metrics.crps(mean, var, target)) == pytest.approx(float(each.mean()), rel=1e-10)


def test_quantile_levels_and_their_curve_equal_scipy() -> None:
    mean, var, target = torch.randn(500).double(), 0.1 + torch.rand(500).double(), torch.randn(500).double()
    level = metrics.quantile_levels(mean, var, target)
    expected = stats.norm(mean, var.sqrt()).cdf(target)
    assert level.tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    curve = metrics.calibration_curve(level)
    shares = stats.ecdf(expected).cdf.evaluate(curve.level.numpy())
    assert curve.share.tolist() == pytest.approx(shares.tolist())
    error = np.abs(shares - curve.level.numpy()).mean()
    assert float(metrics.calibration_error(level)) == pytest.approx(error)


def test_a_calibrated_model_has_uniform_levels() -> None:
    """100,000 targets from the model itself: the largest gap of an ECDF is below √(log(2e6) / 2n)
    but with probability 1e-6 (Dvoretzky–Kiefer–Wolfowitz)."""
    n = 10**5
    mean, var = torch.randn(n), 0.1 + torch.rand(n)
    target = mean + var.sqrt() * torch.randn(n)
    curve = metrics.calibration_curve(metrics.quantile_levels(mean, var, target))
    assert float((curve.share - curve.level).abs().max()) < math.sqrt(math.log(2e6) / (2 * n))


def test_coverage_and_sharpness_by_hand() -> None:
    lower, upper, target = torch.zeros(4), torch.ones(4), torch.tensor([-1.0, 0.0, 0.5, 1.5])
    assert float(metrics.interval_coverage(lower, upper, target)) == 0.5
    assert float(metrics.sharpness(torch.tensor([4.0, 9.0]))) == 2.5


def test_targets_without_the_last_size_of_one() -> None:
    mean, var, target = torch.randn(5, 1), torch.rand(5, 1) + 0.1, torch.randn(5)
    assert float(metrics.lpd(mean, var, target)) == float(metrics.lpd(mean, var, target[:, None]))
    assert float(metrics.crps(mean, var, target)) == float(metrics.crps(mean[:, 0], var[:, 0], target))
    with pytest.raises(ValueError, match="must have one shape"):
        metrics.lpd(torch.randn(3, 2), torch.rand(3, 2), torch.randn(4))


def test_half_precision_is_computed_in_double() -> None:
    mean, var, target = (t.half() for t in mixture())
    for function in (metrics.lpd, metrics.crps):
        value = function(mean, var, target)
        assert value.dtype == torch.float64
        assert float(value) == float(function(mean.double(), var.double(), target.double()))


def test_without_variance_the_crps_is_the_distance() -> None:
    """Of a point mass |y − mean|; of several E|X − y| − ½ E|X − X′| over the points themselves."""
    mean, target = torch.tensor([0.0, 1.0, -2.0]), torch.tensor([0.0, 3.0, 1.0])
    assert metrics.crps_each(mean, torch.zeros(3), target).tolist() == [0, 2, 3]
    points = torch.tensor([[0.0], [0.0], [4.0]])
    value = metrics.crps_each(points, torch.zeros(3, 1), torch.tensor([0.0]))
    between = np.abs(points.numpy() - points.numpy().T).mean()
    assert value.item() == pytest.approx(4 / 3 - between / 2)
    assert metrics.quantile_levels(points, torch.zeros(3, 1), torch.tensor([0.0])).item() == pytest.approx(
        1 / 3
    )
