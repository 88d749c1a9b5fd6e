"""The normal likelihood against scipy and torch.distributions."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import bayesify as bf

BATCH = 6


@pytest.mark.parametrize("extra", [(), (1,), (3,), (2, 3)])
@pytest.mark.parametrize("learn_std", [False, True])
def test_normal_equals_scipy(extra: tuple[int, ...], learn_std: bool) -> None:
    output, target = torch.randn(BATCH, *extra), torch.randn(BATCH, *extra)
    expected = stats.norm.logpdf(target.numpy(), output.numpy(), 0.3).reshape(BATCH, -1).sum(1)
    likelihood = bf.likelihood("normal", std=0.3, learn_std=learn_std)
    np.testing.assert_allclose(likelihood.log_prob(output, target).detach().numpy(), expected, rtol=1e-5)
    assert float(likelihood.nll(output, target).detach()) == pytest.approx(-expected.mean(), rel=1e-5)


def test_a_fixed_std_is_no_parameter_and_a_learned_one_is() -> None:
    for options in ({"std": 1.0}, {"learn_std": False}):
        assert list(bf.likelihood("normal", **options).parameters()) == []
    for options in ({}, {"learn_std": True}, {"std": 0.3, "learn_std": True}):
        assert len(list(bf.likelihood("normal", **options).parameters())) == 1


def test_the_gradient_of_a_learned_std_is_that_of_torch_distributions() -> None:
    output, target = torch.randn(BATCH), torch.randn(BATCH)
    likelihood = bf.likelihood("normal", std=0.7, learn_std=True)
    log_std = torch.tensor(math.log(0.7), requires_grad=True)
    reference = -torch.distributions.Normal(output, log_std.exp()).log_prob(target).mean()
    (ours,) = torch.autograd.grad(likelihood.nll(output, target), list(likelihood.parameters()))
    torch.testing.assert_close(ours, torch.autograd.grad(reference, log_std)[0])


def test_a_learned_std_finds_the_residuals_own() -> None:
    """The maximum likelihood estimate of the std is the root mean square of the residuals."""
    output, target = torch.zeros(50), 2.5 * torch.randn(50)
    likelihood = bf.likelihood("normal", learn_std=True)
    optimizer = torch.optim.LBFGS(likelihood.parameters(), line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = likelihood.nll(output, target)
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(likelihood.std.detach(), target.square().mean().sqrt(), rtol=1e-4, atol=0)


def test_normal_summary_is_mean_and_noise_variance() -> None:
    output = torch.randn(BATCH, 2)
    mean, var = bf.likelihood("normal", std=0.3).summarize(output)
    assert torch.equal(mean, output)
    torch.testing.assert_close(var, torch.full((BATCH, 2), 0.09))


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan])
def test_normal_needs_a_positive_std(std: float) -> None:
    with pytest.raises(ValueError, match=r"likelihood std=.* must be positive"):
        bf.likelihood("normal", std=std)


def test_normal_options_make_it_again() -> None:
    options = bf.likelihood("normal", std=0.25, learn_std=True).options
    assert options == {"std": pytest.approx(0.25), "learn_std": True}
    assert bf.likelihood("normal", **options).options == options
