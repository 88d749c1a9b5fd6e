"""The data term of density propagation against Monte Carlo over the outputs."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import bayesify as bf
from bayesify.moments import Gaussian
from bayesify.objectives.moments import moments_nll

NUM_DRAWS = 400_000


def moments(*shape: int, var: float) -> bf.Moments:
    return bf.Moments(torch.randn(shape).double(), var * (0.2 + torch.rand(shape).double()))


def monte_carlo(likelihood: bf.likelihoods.Likelihood, output: bf.Moments, target: Tensor) -> Tensor:
    noise = torch.randn(NUM_DRAWS // len(target), *output.mean.shape, dtype=torch.float64)
    draws = output.mean + output.var.sqrt() * noise
    flat = likelihood.log_prob(draws.flatten(0, 1), target.repeat(len(draws), *(1,) * (target.dim() - 1)))
    return flat.view(len(draws), -1).mean(0)


@pytest.mark.parametrize("var", [0.01, 1.0, 9.0])
def test_the_bound_lies_below_the_expected_log_likelihood_and_close_for_small_variances(var: float) -> None:
    likelihood, output, target = (
        bf.likelihood("categorical"),
        moments(4, 5, var=var),
        torch.tensor([0, 1, 4, 2]),
    )
    truth = monte_carlo(likelihood, output, target)
    bound = likelihood.expected_log_prob(output, target)
    assert (bound <= truth + 0.02 * math.sqrt(var)).all()  # five standard errors of Monte Carlo
    if var < 0.1:
        assert (truth - bound).abs().max() < 0.01
        second = likelihood.expected_log_prob(output, target, logits="second_order")
        assert (truth - second).abs().max() < 0.002
        plain = likelihood.expected_log_prob(output, target, logits="mean")
        assert torch.equal(plain, -F.cross_entropy(output.mean, target, reduction="none"))


def test_with_full_covariance_the_bound_uses_the_variance_of_differences() -> None:
    """A common shift of all logits changes nothing."""
    mean = torch.randn(3, 4).double()
    shared = Gaussian(mean, torch.full((3, 4, 4), 7.0).double())
    target, likelihood = torch.tensor([0, 3, 1]), bf.likelihood("categorical")
    plain = -F.cross_entropy(mean, target, reduction="none")
    torch.testing.assert_close(likelihood.expected_log_prob(shared, target), plain)
    torch.testing.assert_close(likelihood.expected_log_prob(shared, target, logits="second_order"), plain)
    independent = moments(3, 4, var=1.0)
    full = Gaussian(independent.mean, independent.var.diag_embed())
    for logits in ("bound", "second_order"):
        torch.testing.assert_close(
            likelihood.expected_log_prob(full, target, logits=logits),
            likelihood.expected_log_prob(independent, target, logits=logits),
        )


def test_labels() -> None:
    likelihood, output = bf.likelihood("bernoulli"), moments(4, 3, var=0.02)
    target = torch.tensor([[0.0, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 1]]).double()
    truth = monte_carlo(likelihood, output, target)
    assert (likelihood.expected_log_prob(output, target) - truth).abs().max() < 0.05
    assert (likelihood.expected_log_prob(output, target) <= truth + 0.002).all()
    assert (likelihood.expected_log_prob(output, target, logits="second_order") - truth).abs().max() < 0.002


@pytest.mark.parametrize("name", ["normal", "heteroscedastic"])
def test_regression_is_exact(name: str) -> None:
    likelihood = bf.likelihood(name, std=0.8) if name == "normal" else bf.likelihood(name)
    output = moments(4, 2, var=0.3)
    target = torch.randn(4, 2 if name == "normal" else 1).double()
    truth = monte_carlo(likelihood, output, target)
    assert (
        likelihood.expected_log_prob(output, target) - truth
    ).abs().max() < 0.05  # Monte Carlo: std ≈ 3, 1e5 draws


def test_the_gaussian_objective_is_the_density_of_the_moments() -> None:
    likelihood, output, target = (
        bf.likelihood("categorical"),
        moments(4, 5, var=0.5),
        torch.tensor([0, 1, 4, 2]),
    )
    p = output.mean.softmax(1)
    jacobian = p.diag_embed() - p[:, :, None] * p[:, None]
    var = (jacobian.square() @ output.var[:, :, None])[:, :, 0] + 0.01
    density = torch.distributions.Normal(p, var.sqrt()).log_prob(F.one_hot(target, 5).double()).sum(1)
    torch.testing.assert_close(likelihood.gaussian_log_prob(output, target, var_floor=0.01), density)
    normal = bf.likelihood("normal", std=0.5)
    y = torch.randn(4, 5).double()
    density = torch.distributions.Normal(output.mean, (output.var + 0.25).sqrt()).log_prob(y).sum(1)
    torch.testing.assert_close(normal.gaussian_log_prob(output, y), density)


def test_ignored_positions_and_class_weights_count_as_in_the_cross_entropy() -> None:
    likelihood = bf.likelihood("categorical", class_weight=[1.0, 2.0, 0.5], ignore_index=-1).double()
    output, target = moments(2, 3, 4, var=0.2), torch.tensor([[0, 1, -1, 2], [2, -1, -1, 1]])
    for logits in ("bound", "second_order", "mean"):
        whole = likelihood.expected_log_prob(output, target, logits=logits)
        parts = torch.zeros(2).double()
        for i, j in ((0, 0), (0, 1), (0, 3), (1, 0), (1, 3)):
            one = bf.Moments(output.mean[i : i + 1, :, j], output.var[i : i + 1, :, j])
            parts[i] += likelihood.expected_log_prob(one, target[i : i + 1, j], logits=logits)[0]
        torch.testing.assert_close(whole, parts)


def test_soft_labels_take_the_second_order() -> None:
    likelihood, output = bf.likelihood("categorical"), moments(3, 4, var=0.2)
    target = torch.rand(3, 4).double().softmax(1)
    torch.testing.assert_close(
        likelihood.expected_log_prob(output, target),
        likelihood.expected_log_prob(output, target, logits="second_order"),
    )


def test_sample_weights_and_the_gaussian_refusal() -> None:
    likelihood, output, target = bf.likelihood("categorical"), moments(2, 3, var=0.2), torch.tensor([0, 2])
    weighted = moments_nll(likelihood, output, target, torch.tensor([2.0, 0.0]).double())
    assert weighted == pytest.approx(-likelihood.expected_log_prob(output, target)[0].item())
    with pytest.raises(ValueError, match="one class per example"):
        likelihood.gaussian_log_prob(moments(2, 3, 4, var=0.1), torch.zeros(2, 4).long())
