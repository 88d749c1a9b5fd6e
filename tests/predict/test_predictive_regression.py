"""Predictive of regression: hand-computed cases."""

import math

import numpy as np
import pytest
import torch
from predictive_cases import LOG_VARS, MEANS, predictive, regression
from scipy import optimize, special, stats
from torch import nn

import bayesify as bf


def test_the_law_of_total_variance() -> None:
    pred = regression()
    torch.testing.assert_close(pred.mean, MEANS.mean(0))
    torch.testing.assert_close(pred.aleatoric, LOG_VARS.exp().mean(0))
    torch.testing.assert_close(pred.epistemic, MEANS.var(0))
    torch.testing.assert_close(pred.variance, pred.aleatoric + pred.epistemic)
    second = (MEANS.square() + LOG_VARS.exp()).mean(0)  # of the mixture, whose own variance has the divisor S
    mixture = pred.aleatoric + (1 - 1 / len(MEANS)) * pred.epistemic
    torch.testing.assert_close(mixture, second - pred.mean.square(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(pred.std, pred.variance.sqrt())


@pytest.mark.parametrize("num_draws", [2, 5, 20])
def test_the_epistemic_variance_of_few_draws_is_right_on_average_and_knows_its_error(num_draws: int) -> None:
    """20,000 predictions, each of S normal draws of variance 4: the mean within 4.9 standard errors (failure 1e-6),
    the standard deviation √(2 / (S − 1)) of 4, with the error that the fourth moment of χ² gives it."""
    n, freedom = 20_000, num_draws - 1
    draws = 2 * torch.randn(num_draws, n, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pred = predictive(bf.likelihood("normal"), [*draws])
    off = 4 * math.sqrt(2 / freedom)
    assert pred.epistemic.mean().item() == pytest.approx(4, abs=4.9 * off / math.sqrt(n))
    kurtosis = 3 + 12 / freedom
    relative = 4.9 * math.sqrt((kurtosis - 1) / n) / 2
    assert pred.epistemic.std().item() == pytest.approx(off, rel=relative)
    torch.testing.assert_close(pred.epistemic_error, pred.epistemic * off / 4)


def test_one_draw_shows_no_disagreement_and_says_that_it_cannot() -> None:
    pred = predictive(bf.likelihood("normal"), [torch.randn(3, 1)])
    assert (pred.epistemic == 0).all() and pred.epistemic_error.isinf().all()


def test_draws_of_propagated_moments_have_their_variance_whatever_their_number() -> None:
    net = nn.Linear(3, 1)
    model = bf.bayesify(net, bf.DensityPropagation(), bf.likelihood("normal", std=0.1), num_data=10)
    x = torch.randn(5, 3)
    with torch.no_grad():
        exact = model(x).var
    for num_draws in (2, 7):
        torch.testing.assert_close(model.predict(x, num_draws).epistemic, exact, rtol=1e-4, atol=1e-7)


def test_entropy_of_the_normal_with_the_total_variance() -> None:
    pred = regression()
    np.testing.assert_allclose(pred.entropy.numpy(), stats.norm.entropy(scale=pred.std.numpy()), rtol=1e-5)


def test_log_prob_with_samples_is_the_mixture_over_draws() -> None:
    target = torch.randn(4, 2)
    per_draw = stats.norm.logpdf(target.numpy(), MEANS.numpy(), (LOG_VARS / 2).exp().numpy()).sum(2)
    expected = special.logsumexp(per_draw, axis=0) - math.log(len(MEANS))
    np.testing.assert_allclose(regression(keep=True).log_prob(target).numpy(), expected, rtol=1e-5)


def test_log_prob_without_samples_is_the_normal() -> None:
    target, pred = torch.randn(4, 2), regression()
    expected = stats.norm.logpdf(target.numpy(), pred.mean.numpy(), pred.std.numpy()).sum(1)
    np.testing.assert_allclose(pred.log_prob(target).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("keep", [False, True])
def test_log_prob_refuses_a_target_of_another_shape(keep: bool) -> None:
    with pytest.raises(ValueError, match="shape"):
        regression(keep).log_prob(torch.randn(2, 4))


def test_log_prob_takes_a_target_without_the_last_size_of_one() -> None:
    pred = predictive(bf.likelihood("normal"), [torch.randn(5, 1) for _ in range(3)])
    target = torch.randn(5)
    assert torch.equal(pred.log_prob(target), pred.log_prob(target[:, None]))


@pytest.mark.parametrize("mass", [0.05, 0.5, 0.9, 0.999])
def test_interval_holds_the_mass_of_the_mixture(mass: float) -> None:
    lower, upper = regression(keep=True).interval(mass)
    means, stds = MEANS.double().numpy(), (LOG_VARS.double() / 2).exp().numpy()
    for index in np.ndindex(4, 2):
        each, widths = means[(slice(None), *index)], stds[(slice(None), *index)]

        def cdf(x: float, each: np.ndarray = each, widths: np.ndarray = widths) -> float:
            return float(stats.norm.cdf(x, each, widths).mean())

        for level, bound in (((1 - mass) / 2, lower), ((1 + mass) / 2, upper)):
            root = optimize.brentq(lambda x, level=level: cdf(x) - level, -60, 60, xtol=1e-10)
            assert float(bound[index]) == pytest.approx(root, rel=1e-4, abs=1e-4)


def test_interval_of_one_draw_is_the_normals() -> None:
    pred = predictive(bf.likelihood("normal", std=2.0), [torch.tensor([[3.0]])], keep=True)
    lower, upper = pred.interval(0.9)
    expected = stats.norm.interval(0.9, 3.0, 2.0)
    assert (lower.item(), upper.item()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("mass", [0.0, 1.0, -0.1, 90.0])
def test_interval_needs_a_share(mass: float) -> None:
    with pytest.raises(ValueError, match=rf"mass={mass} must be a number between 0 and 1"):
        regression(keep=True).interval(mass)
