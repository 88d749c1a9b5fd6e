"""The likelihood averaged over many draws of the last layer (paper 1, §4.2): expectation, gradients and law.

Statistical tests compare means of independent losses with exact values; their tolerance is the quantile of Student's t
at a failure rate of 1e-6 times the standard error of those losses.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from last_layer_cases import FAILURE_RATE, TARGETS, X, Y, law, make, network, output_of
from scipy import stats
from torch import Tensor, nn

import bayesify as bf
from bayesify.likelihoods import normal
from bayesify.objectives import last_layer as objective


def close_in_mean(samples: Tensor, exact: Tensor) -> None:
    error = abs(samples.mean() - exact)
    limit = stats.t.isf(FAILURE_RATE / 2, len(samples) - 1) * samples.std() / math.sqrt(len(samples))
    assert error < limit
    assert limit < 0.02 * abs(exact)  # the test has power


def hermite(function: Callable[[Tensor], Tensor], mean: Tensor, std: Tensor) -> Tensor:
    """E f(u), u ~ N(mean, std²), by Gauss–Hermite quadrature."""
    nodes, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(64))
    return (function(mean[..., None] + std[..., None] * nodes) * weights).sum(-1) / weights.sum()


def exact_nll(likelihood: str, mean: Tensor, std: Tensor, y: Tensor) -> Tensor:
    if likelihood == "normal":
        squares = (y - mean).square() + std.square()
        return (0.5 * squares + 0.5 * math.log(2 * math.pi)).sum(1).mean()
    if likelihood == "bernoulli":
        sign = 1 - 2 * y
        return hermite(nn.functional.softplus, sign * mean, std).sum(1).mean()
    if likelihood == "heteroscedastic":
        (m, log_var), (m_std, log_std) = mean.chunk(2, -1), std.chunk(2, -1)
        precision = (0.5 * log_std.square() - log_var).exp()  # E e^{−l} of a normal l
        squares = ((y - m).square() + m_std.square()) * precision
        return 0.5 * (squares + log_var + math.log(2 * math.pi)).sum(1).mean()
    # two classes: −log p(y) = softplus(other logit − own), a difference that is normal
    own = y[:, None]
    difference = (mean.gather(1, 1 - own) - mean.gather(1, own))[:, 0]
    return hermite(nn.functional.softplus, difference, std.square().sum(1).sqrt()).mean()


# -- expectation ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sampling", ["draw", "local"])
@pytest.mark.parametrize("likelihood", TARGETS)
def test_the_expectation_is_that_of_quadrature(likelihood: str, sampling: str) -> None:
    model = make(20, likelihood, network(2), where=bf.where.output, sampling=sampling)
    y = TARGETS[likelihood]
    with torch.no_grad():
        losses = torch.stack([model.loss(X, y).nll for _ in range(500)])
    close_in_mean(losses, exact_nll(likelihood, *law(model, X), y))


@pytest.mark.parametrize("family", ["laplace", "radial", "logistic"])
def test_other_families_draw_the_weights_of_the_last_layer(family: str) -> None:
    """E (y − u)² = (y − E u)² + Σ x² Var w + Var b for uncorrelated weights, whatever their law."""
    model = make(20, "normal", network(2), where=bf.where.output, family=family)
    y = TARGETS["normal"]
    with torch.no_grad():
        losses = torch.stack([model.loss(X, y).nll for _ in range(500)])
    close_in_mean(losses, exact_nll("normal", *law(model, X), y))


# -- the same estimator as the plain one, given the noise ----------------------------------------------------
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("likelihood", ["bernoulli", "heteroscedastic", "categorical"])
def test_value_and_gradient_are_those_of_the_plain_estimator(
    likelihood: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective, "chunk_size", lambda *_: 3)  # 7 draws in chunks of 3, 3 and 1
    mean, log_std = torch.randn(2, 6, 2, dtype=torch.float64)
    sample_weight = torch.rand(6, dtype=torch.float64) if weighted else None
    p, y = bf.likelihood(likelihood), TARGETS[likelihood]
    gradients = []
    for plain in (False, True):
        leaves = [t.clone().requires_grad_() for t in (mean, log_std)]
        if plain:
            generator = torch.Generator().manual_seed(0)
            shapes = [(n, *mean.shape) for n in (3, 3, 1)]
            noise = torch.cat([torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes])
            draws = leaves[0] + leaves[1].exp() * noise
            nll = torch.stack([p.nll(u, y, sample_weight) for u in draws]).mean()
        else:
            output = output_of(leaves[0], leaves[1].exp(), 7)
            nll = objective.last_layer_nll(p, output, y, sample_weight, num_draws=7)
        gradients.append([nll.detach(), *torch.autograd.grad(nll, leaves)])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=1e-14)


def test_regression_needs_two_statistics_of_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """With z = √M ξ̄ and χ² = Σ(ξ − ξ̄)² of given noise: the mean over those draws, and its gradients."""
    mean, log_std = torch.randn(2, 6, 2, dtype=torch.float64)
    noise = torch.randn(9, 6, 2, dtype=torch.float64)
    monkeypatch.setattr(normal, "standard_normal", lambda *_: 3 * noise.mean(0))
    monkeypatch.setattr(normal, "chi_squared", lambda *_: 9 * noise.var(0, correction=0))
    p, y = bf.likelihood("normal", std=0.7, learn_std=True), TARGETS["normal"]
    gradients = []
    for plain in (False, True):
        leaves = [mean.clone().requires_grad_(), log_std.clone().requires_grad_(), p.log_std]
        if plain:
            nll = torch.stack([p.nll(leaves[0] + leaves[1].exp() * xi, y) for xi in noise]).mean()
        else:
            nll = objective.last_layer_nll(p, output_of(leaves[0], leaves[1].exp(), 9), y, num_draws=9)
        gradients.append([nll.detach(), *torch.autograd.grad(nll, leaves)])
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)  # the likelihood's std is float32


def test_a_likelihood_that_trains_gets_its_gradients() -> None:
    class Tempered(bf.likelihoods.Categorical):
        name = "tempered"

        def __init__(self) -> None:
            super().__init__()
            self.log_temperature = nn.Parameter(torch.zeros((), dtype=torch.float64))

        def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
            return super().log_prob(output / self.log_temperature.exp(), target)

    model = make(5, Tempered())
    model.loss(X, Y).total.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


# -- laws ----------------------------------------------------------------------------------------------------
def log_probs(model: bf.BayesianModule, x: Tensor, y: Tensor) -> Tensor:
    """log p of every example: the mean nll is linear in the weights of the examples."""
    weight = torch.ones(len(x), dtype=x.dtype, requires_grad=True)
    (slope,) = torch.autograd.grad(model.loss(x, y, sample_weight=weight).nll, weight)
    return -slope * len(x)


@pytest.mark.parametrize("num_draws", [1, 2, 10])
@pytest.mark.parametrize("likelihood", ["normal", "categorical"])
def test_the_law_is_that_of_the_mean_over_local_passes(likelihood: str, num_draws: int) -> None:
    """Kolmogorov–Smirnov between 3,000 copies of one example in the two estimators."""
    copies = 3000
    y = TARGETS[likelihood][:1].expand(copies, *TARGETS[likelihood].shape[1:])
    model = make(1, likelihood, network(2), where=bf.where.output, sampling="local")
    with torch.no_grad():
        plain = [model.likelihood.log_prob(model(X[:1].expand(copies, 4)), y) for _ in range(num_draws)]
        mean, std = (t.expand(copies, 2) for t in law(model, X[:1]))
    weight = torch.ones(copies, dtype=torch.float64, requires_grad=True)
    output = output_of(mean, std, num_draws, seed=7)
    if likelihood == "normal":
        nll = objective.last_layer_nll(model.likelihood, output, y, weight, num_draws=num_draws)
        (slope,) = torch.autograd.grad(nll, weight)
        found = -slope * copies
    else:  # value and slopes are numbers there: one example at a time
        found = torch.stack(
            [
                -objective.last_layer_nll(
                    model.likelihood, output_of(mean[:1], std[:1], num_draws, i), y[:1], num_draws=num_draws
                )
                for i in range(copies)
            ]
        )
    expected = torch.stack(plain).mean(0)
    assert stats.ks_2samp(found.numpy(), expected.numpy()).pvalue > FAILURE_RATE


@pytest.mark.parametrize("num_draws", [2, 4, 16])
@pytest.mark.parametrize("batch", [1, 8])
def test_the_variance_follows_formula_8(batch: int, num_draws: int) -> None:
    """V = (V(w) E u² / M + V(u) E² w) / B for the linear term of the log-likelihood of u w, u and w independent.

    With y = ±1, ½ (log p(1) − log p(−1)) of the same draws is exactly their mean u w. The variance of R such values
    has the standard error σ² √((κ − 1)/R), κ their kurtosis, here estimated from them.
    """
    repetitions = 40_000
    x = torch.ones(repetitions * batch, 1, dtype=torch.float64)
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)).double()
    model = make(num_draws, "normal", net, sampling="local")
    means, stds = (0.8, -0.6), (0.5, 0.9)
    with torch.no_grad():
        for i, (mean, std) in enumerate(zip(means, stds, strict=True)):
            model.net.get_parameter(f"{i}.weight").fill_(mean)
            model.get_parameter(f"posterior.q.{i}.weight.log_scale").fill_(math.log(std))
    values = []
    for y in (1.0, -1.0):
        torch.manual_seed(1)
        values.append(log_probs(model, x, torch.full_like(x, y)))
    estimates = (0.5 * (values[0] - values[1])).view(repetitions, batch).mean(1)
    square_u, var_u, var_w = means[0] ** 2 + stds[0] ** 2, stds[0] ** 2, stds[1] ** 2
    exact = (var_w * square_u / num_draws + var_u * means[1] ** 2) / batch
    deviations = estimates - means[0] * means[1]
    kurtosis = float(deviations.pow(4).mean() / deviations.square().mean().square())
    tolerance = stats.norm.isf(FAILURE_RATE / 2) * exact * math.sqrt((kurtosis - 1) / repetitions)
    assert abs(float(deviations.square().mean()) - exact) < tolerance
    assert tolerance < 0.1 * exact
