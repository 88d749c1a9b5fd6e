"""The poisson likelihood against scipy."""

import math

import numpy as np
import pytest
import torch
from likelihood_cases import X
from scipy import stats
from torch import nn

import bayesify as bf
from bayesify.predict.calibration import calibrated

BATCH = 6


@pytest.mark.parametrize("extra", [(), (1,), (2, 3)])
def test_log_prob_equals_scipy(extra: tuple[int, ...]) -> None:
    output, target = torch.randn(BATCH, *extra), torch.randint(9, (BATCH, *extra))
    likelihood = bf.likelihood("poisson")
    expected = stats.poisson.logpmf(target.numpy(), output.exp().numpy()).reshape(BATCH, -1).sum(1)
    found = likelihood.log_prob(output, likelihood.check(output, target, True))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("count", [1e4, 1e6, 1e7])
def test_large_counts_keep_their_digits(count: float) -> None:
    target = torch.tensor([[count]])
    output = (target + count**0.5).log()
    expected = stats.poisson.logpmf(count, math.exp(output.item()))
    moments = bf.Moments(output, torch.zeros_like(output))
    for found in (
        bf.likelihood("poisson").log_prob(output, target),
        bf.likelihood("poisson").expected_log_prob(moments, target),
    ):
        assert found.dtype == torch.float32 and found.item() == pytest.approx(expected, rel=1e-6)


def test_summary_is_the_rate_twice() -> None:
    mean, var = bf.likelihood("poisson").summarize(torch.tensor([[0.0], [math.log(7.0)]]))
    for rate, m, v in zip((1.0, 7.0), mean, var, strict=True):
        assert (float(m), float(v)) == pytest.approx(stats.poisson.stats(rate), rel=1e-6)


def test_distribution_function_equals_scipy() -> None:
    value = torch.linspace(-2, 30, 129).double()
    for rate in (0.01, 1.0, 8.0):
        found = bf.likelihood("poisson").cdf(torch.full_like(value, math.log(rate)), value)
        np.testing.assert_allclose(found.numpy(), stats.poisson.cdf(value.numpy(), rate), atol=1e-12)


@pytest.mark.parametrize("mass", [0.5, 0.9, 0.99])
def test_interval_equals_scipys_in_whole_numbers(mass: float) -> None:
    model = bf.bayesify(nn.Linear(3, 1), bf.Point(), "poisson")
    pred = model.predict(3 * X, keep_samples=True)
    lower, upper = pred.interval(mass)
    rates = pred.mean.double().numpy()
    np.testing.assert_array_equal(lower.numpy(), stats.poisson.ppf((1 - mass) / 2, rates))
    np.testing.assert_array_equal(upper.numpy(), stats.poisson.ppf((1 + mass) / 2, rates))


def test_expected_log_likelihood_is_exact() -> None:
    """Against quadrature over the log-rate."""
    mean, var, target = torch.tensor([[0.5]]).double(), torch.tensor([[0.3]]).double(), torch.tensor([[2.0]])
    grid = torch.linspace(-9, 9, 20001, dtype=torch.float64)[:, None]
    weight = torch.distributions.Normal(0.0, 1.0).log_prob(grid[:, 0]).exp() * (18 / 20000)
    likelihood = bf.likelihood("poisson")
    exact = (weight * likelihood.log_prob(mean + var.sqrt() * grid, target.double())).sum()
    found = likelihood.expected_log_prob(bf.Moments(mean, var), target.double())
    torch.testing.assert_close(found[0], exact, rtol=1e-8, atol=0)


@pytest.mark.parametrize("wrong", [-1.0, 0.5, math.nan])
def test_targets_must_be_counts(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"target holds (-1|0\.5|NaN)"):
        bf.likelihood("poisson").nll(torch.zeros(2), torch.tensor([1.0, wrong]))


def test_a_right_model_is_calibrated() -> None:
    """4,000 counts of the model's own rates: levels are uniform on average, within 5 standard errors."""
    torch.manual_seed(0)
    x = torch.randn(4000, 3)
    model = bf.bayesify(nn.Linear(3, 1), bf.Point(), "poisson")
    y = torch.poisson(model.predict(x).mean)
    level = model.predict(x).level(y)
    assert abs(float(level.mean()) - 0.5) < 5 * math.sqrt(1 / 12 / 4000)
    assert bf.evaluate(model, [(x, y)], 1)["coverage90"] > 0.88


def test_counts_cannot_be_rescaled() -> None:
    pred = bf.bayesify(nn.Linear(3, 1), bf.Point(), "poisson").predict(X)
    with pytest.raises(
        ValueError, match=r"predictions of whole numbers \(likelihood 'poisson'\) cannot be rescaled"
    ):
        calibrated(pred, 2.0)
