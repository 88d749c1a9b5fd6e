"""Bayesian linear regression: known noise, normal prior, so that every quantity has a closed form.

The best factorized normal has the exact posterior's means, and variances 1 / diag(precision matrix).
"""

import math
from typing import NamedTuple

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import bayesify as bf
from bayesify.posteriors import SAMPLINGS

NUM_DATA = 40
NOISE_STD = 0.5
PRIOR_STD = 1.5
FAILURE_RATE = 1e-6
SAMPLED = SAMPLINGS[:3]  # draw, local, flipout


class Problem(NamedTuple):
    x: Tensor  # (data, features)
    y: Tensor  # (data, 1)
    design: Tensor  # (data, coefficients): x, and a column of ones for the bias
    mean: Tensor  # (coefficients,) of the exact posterior and of the best factorized normal
    var: Tensor  # (coefficients,) of the best factorized normal
    precision: Tensor  # (coefficients, coefficients) of the exact posterior


def make_problem(bias: bool) -> Problem:
    generator = torch.Generator().manual_seed(3)
    mixing = torch.tensor([[1.0, 0.6, 0.0], [0.0, 1.0, -0.4], [0.0, 0.0, 1.0]], dtype=torch.float64)
    x = torch.randn(NUM_DATA, 3, generator=generator, dtype=torch.float64) @ mixing + 0.3
    noise = NOISE_STD * torch.randn(NUM_DATA, 1, generator=generator, dtype=torch.float64)
    y = x @ torch.tensor([[1.5], [-1.0], [0.8]], dtype=torch.float64) + 0.9 * bias + noise
    design = torch.cat([x, torch.ones(NUM_DATA, 1, dtype=torch.float64)], 1) if bias else x
    precision = design.T @ design / NOISE_STD**2 + torch.eye(design.shape[1]) / PRIOR_STD**2
    mean = torch.linalg.solve(precision, design.T @ y[:, 0] / NOISE_STD**2)
    return Problem(x.float(), y.float(), design, mean, 1 / precision.diagonal(), precision)


def negative_elbo(problem: Problem, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """(expected negative log-likelihood of all data, KL), both exact."""
    y = problem.y[:, 0].double()
    squares = (y - problem.design @ mean).square().sum() + (problem.design.square() @ var).sum()
    nll = 0.5 * NUM_DATA * math.log(2 * math.pi * NOISE_STD**2) + squares / (2 * NOISE_STD**2)
    q = torch.distributions.Normal(mean, var.sqrt())
    p = torch.distributions.Normal(torch.zeros_like(mean), PRIOR_STD * torch.ones_like(mean))
    return nll, torch.distributions.kl_divergence(q, p).sum()


def make_model(sampling: str, bias: bool) -> bf.BayesianModule:
    method = bf.MonteCarloVI(
        prior=bf.prior("normal", std=PRIOR_STD), sampling=sampling, where=bf.where.all, init_std=0.3
    )
    likelihood = bf.likelihood("normal", std=NOISE_STD)
    torch.manual_seed(1)
    return bf.bayesify(nn.Linear(3, 1, bias=bias), method, likelihood, num_data=NUM_DATA)


def posterior_of(model: bf.BayesianModule) -> tuple[Tensor, Tensor]:
    """(means, variances) of weight and bias, as one vector each."""
    names = [name for name, _ in model.net.named_parameters()]
    distributions = model.posterior.distributions(names)
    mean = torch.cat([distributions[name].mean.flatten() for name in names])
    var = torch.cat([distributions[name].variance.flatten() for name in names])
    return mean.detach().double(), var.detach().double()


def move_to(model: bf.BayesianModule, mean: Tensor, var: Tensor) -> None:
    """Set the posterior's means and variances."""
    sizes = [p.numel() for p in model.net.parameters()]
    with torch.no_grad():
        for (name, parameter), m, v in zip(
            model.net.named_parameters(), mean.split(sizes), var.split(sizes), strict=True
        ):
            parameter.copy_(m.reshape(parameter.shape))
            log_scale = model.posterior.q.get_submodule(name).log_scale
            log_scale.copy_(0.5 * v.log().reshape(parameter.shape))


def train(model: bf.BayesianModule, problem: Problem, num_steps: int, batch: int, num_draws: int) -> None:
    """Adam with a learning rate that falls to 0; ends at the average over the last three quarters.

    One draw's gradient in log σ has noise √2 against a curvature of 2, so the average over n draws finds
    a variance to about √(2 / n): 1.5 % for 9,000 draws.
    """
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=0.03)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / num_steps)
    averages = [torch.zeros_like(p) for p in parameters]
    torch.manual_seed(2)
    for step in range(num_steps):
        rows = slice(None) if batch == NUM_DATA else torch.randint(NUM_DATA, (batch,))
        loss = model.loss(problem.x[rows], problem.y[rows], num_draws=num_draws)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        schedule.step()
        if step >= num_steps // 4:
            for average, parameter in zip(averages, parameters, strict=True):
                average += parameter.detach() / (num_steps - num_steps // 4)
    with torch.no_grad():
        for average, parameter in zip(averages, parameters, strict=True):
            parameter.copy_(average)


def test_the_closed_form_is_a_minimum_of_the_negative_elbo() -> None:
    problem = make_problem(bias=True)
    mean = problem.mean.clone().requires_grad_()
    log_var = problem.var.log().requires_grad_()
    sum(negative_elbo(problem, mean, log_var.exp())).backward()
    torch.testing.assert_close(mean.grad, torch.zeros_like(mean), atol=1e-4, rtol=0)
    torch.testing.assert_close(log_var.grad, torch.zeros_like(mean), atol=1e-4, rtol=0)


def test_the_best_factorized_variances_differ_from_the_marginal_ones() -> None:
    problem = make_problem(bias=True)
    marginal = torch.linalg.inv(problem.precision).diagonal()
    assert (problem.var < 0.95 * marginal).any()


@pytest.mark.parametrize(
    ("sampling", "bias", "num_draws"),
    [("draw", True, 8), ("local", True, 2), ("flipout", True, 8), ("local", False, 2)],
)
def test_training_finds_the_best_factorized_posterior(sampling: str, bias: bool, num_draws: int) -> None:
    problem = make_problem(bias)
    model = make_model(sampling, bias)
    train(model, problem, num_steps=1500, batch=NUM_DATA, num_draws=num_draws)
    mean, var = posterior_of(model)
    torch.testing.assert_close(mean, problem.mean, rtol=0.01, atol=0)
    torch.testing.assert_close(var, problem.var, rtol=0.05, atol=0)


def test_minibatches_find_the_same_posterior() -> None:
    problem = make_problem(bias=True)
    model = make_model("local", bias=True)
    train(model, problem, num_steps=4000, batch=20, num_draws=1)
    mean, var = posterior_of(model)
    torch.testing.assert_close(mean, problem.mean, rtol=0.01, atol=0)
    torch.testing.assert_close(var, problem.var, rtol=0.05, atol=0)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sampling", SAMPLED)
def test_the_loss_at_the_optimum_is_the_closed_form(sampling: str, bias: bool) -> None:
    problem = make_problem(bias)
    model = make_model(sampling, bias)
    move_to(model, problem.mean, problem.var)
    nll, kl = negative_elbo(problem, problem.mean, problem.var)
    num_draws = 1000
    with torch.no_grad():
        losses = [model.loss(problem.x, problem.y) for _ in range(num_draws)]
    totals = NUM_DATA * torch.stack([loss.total for loss in losses]).double()
    tolerance = stats.norm.isf(FAILURE_RATE / 2) * float(totals.std()) / math.sqrt(num_draws)
    assert tolerance < 0.01 * float(nll + kl)
    assert abs(float(totals.mean() - (nll + kl))) < tolerance
    assert float(losses[0].kl) == pytest.approx(float(kl), rel=1e-5)


@pytest.mark.parametrize("sampling", SAMPLED)
def test_the_expected_gradient_vanishes_at_the_optimum(sampling: str) -> None:
    problem = make_problem(bias=True)
    model = make_model(sampling, bias=True)
    move_to(model, problem.mean, problem.var)
    parameters = [p for p in model.parameters() if p.requires_grad]
    num_draws = 600
    rows = []
    for _ in range(num_draws):
        gradients = torch.autograd.grad(model.loss(problem.x, problem.y).total, parameters)
        rows.append(torch.cat([g.flatten() for g in gradients]))
    gradient = torch.stack(rows).double()  # (draws, parameters)
    z = stats.norm.isf(FAILURE_RATE / 2 / gradient.shape[1])
    assert (gradient.mean(0).abs() <= z * gradient.std(0) / math.sqrt(num_draws)).all()
