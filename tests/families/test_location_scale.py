"""The normal family: draws, densities and starting values."""

import math

import pytest
import torch
from scipy import stats

import bayesify as bf
from bayesify import families

FAILURE_RATE = 1e-6
NUM_DRAWS = 20_000


def make_q() -> families.Normal:
    return families.Normal(torch.tensor([[-1.0, 0.0, 2.0]]), torch.tensor([[-2.0, 0.0, 1.0]]))


def test_draws_have_the_stated_mean_and_variance() -> None:
    """Exact laws: the mean of n draws is normal, the sum of squares is χ² with n degrees of freedom."""
    q = make_q()
    draws = q.rsample(NUM_DRAWS, torch.Generator().manual_seed(0))  # (draws, 1, 3)
    rate = FAILURE_RATE / q.loc.numel()
    z = math.sqrt(NUM_DRAWS) * (draws.mean(0) - q.mean) / q.variance.sqrt()
    assert z.abs().max() < stats.norm.isf(rate / 2)
    squares = ((draws - q.mean).square() / q.variance).sum(0)
    assert squares.min() > stats.chi2.ppf(rate / 2, NUM_DRAWS)
    assert squares.max() < stats.chi2.isf(rate / 2, NUM_DRAWS)


def test_the_density_equals_torch_distributions() -> None:
    q = make_q()
    value = torch.randn(7, 1, 3, generator=torch.Generator().manual_seed(1))
    expected = torch.distributions.Normal(q.loc, q.log_scale.exp()).log_prob(value)
    torch.testing.assert_close(q.log_prob(value), expected, rtol=1e-6, atol=1e-6)


def test_mean_and_variance_are_those_of_the_parameters() -> None:
    q = make_q()
    assert torch.equal(q.mean, q.loc)
    torch.testing.assert_close(q.variance, torch.exp(2 * q.log_scale))
    torch.testing.assert_close(q.scale**2, q.variance)


def test_a_draw_carries_the_reparameterized_gradient() -> None:
    """w = loc + exp(log_scale) ξ, so dw/dloc = 1 and dw/dlog_scale = w − loc."""
    q = bf.family("normal", like=torch.tensor([1.0, -2.0]))
    w = q.rsample(generator=torch.Generator().manual_seed(0))
    to_loc, to_log_scale = torch.autograd.grad(w.sum(), [q.loc, q.log_scale])
    torch.testing.assert_close(to_loc, torch.ones(2))
    torch.testing.assert_close(to_log_scale, (w - q.loc).detach())


def test_shapes_of_one_and_of_several_draws() -> None:
    q = bf.family("normal", like=torch.zeros(2, 3))
    assert q.rsample().shape == (2, 3)
    assert q.rsample(5).shape == (5, 2, 3)
    assert q.log_prob(q.rsample(5)).shape == (5, 2, 3)


def test_a_generator_makes_draws_reproducible_and_leaves_the_global_state() -> None:
    q = bf.family("normal", like=torch.zeros(4))
    state = torch.get_rng_state()
    first = q.rsample(3, torch.Generator().manual_seed(5))
    assert torch.equal(first, q.rsample(3, torch.Generator().manual_seed(5)))
    assert not torch.equal(first, q.rsample(3, torch.Generator().manual_seed(6)))
    assert torch.equal(state, torch.get_rng_state())


def test_the_centre_is_the_given_tensor_and_the_start_a_fraction_of_its_size() -> None:
    like = torch.tensor([3.0, -4.0])  # root mean square √12.5
    q = bf.family("normal", like=like, init_std=0.1)
    assert torch.equal(q.mean, like)
    torch.testing.assert_close(q.variance, torch.full((2,), 0.01 * 12.5))


def test_an_all_zero_tensor_starts_with_a_positive_std() -> None:
    torch.testing.assert_close(
        bf.family("normal", like=torch.zeros(2)).variance, torch.full((2,), (0.05 * 0.1) ** 2)
    )


@pytest.mark.parametrize("like", [torch.tensor([1, 2]), [1.0, 2.0]])
def test_like_must_be_a_floating_point_tensor(like: object) -> None:
    with pytest.raises(TypeError, match=r"like=.* must be a floating-point tensor"):
        bf.family("normal", like=like)


def test_an_unknown_family_is_named_with_the_nearest_choice() -> None:
    with pytest.raises(ValueError, match=r"family='norml' does not exist.*Did you mean 'normal'\?"):
        bf.family("norml", like=torch.zeros(1))


def test_an_unknown_option_is_refused_rather_than_ignored() -> None:
    with pytest.raises((TypeError, ValueError), match="scale"):
        bf.family("normal", like=torch.zeros(1), scale=3.0)


def test_the_prior_density_equals_torch_distributions() -> None:
    value = torch.linspace(-3, 3, 7)
    expected = torch.distributions.Normal(0.5, 2.0).log_prob(value)
    torch.testing.assert_close(bf.prior("normal", mean=0.5, std=2.0).log_prob(value), expected)


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan])
def test_a_prior_needs_a_positive_std(std: float) -> None:
    with pytest.raises(ValueError, match=r"prior std=.* must be positive"):
        bf.prior("normal", std=std)
