"""The exact KL between normals, against torch.distributions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal, kl_divergence

import bayesify as bf
from bayesify import families

SHAPES = st.lists(st.integers(1, 4), max_size=3).map(tuple)
LOCATIONS = st.floats(-20, 20)
LOG_STDS = st.floats(-6, 3)
EPS = torch.finfo(torch.float64).eps


def make_q(seed: int, shape: tuple[int, ...], centre: float, log_std: float) -> families.Normal:
    generator = torch.Generator().manual_seed(seed)
    loc = centre + torch.randn(shape, generator=generator, dtype=torch.float64)
    log_scale = log_std + torch.randn(shape, generator=generator, dtype=torch.float64)
    return families.Normal(loc.requires_grad_(), log_scale.requires_grad_())


def reference(q: families.Normal, mean: float, std: float) -> tuple[Tensor, Tensor]:
    """The KL, and the size of the terms that cancel in it (for the floor of the rounding error)."""
    p = Normal(torch.full_like(q.loc, mean), torch.full_like(q.loc, std))
    terms = q.log_scale.abs() + abs(p.scale.log()) + (q.variance + (q.loc - mean) ** 2) / std**2 + 1
    return kl_divergence(Normal(q.loc, q.scale), p).sum(), terms.sum()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), SHAPES, LOCATIONS, LOG_STDS, LOCATIONS, LOG_STDS)
def test_the_exact_kl_equals_torch_distributions(
    seed: int, shape: tuple[int, ...], centre: float, log_std: float, mean: float, log_prior_std: float
) -> None:
    q = make_q(seed, shape, centre, log_std)
    std = float(torch.tensor(log_prior_std, dtype=torch.float64).exp())
    expected, terms = reference(q, mean, std)
    value = bf.kl(q, bf.prior("normal", mean=mean, std=std), "exact")
    assert value.shape == ()
    assert (value - expected).abs() <= 1e-6 * expected + 16 * EPS * terms


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), SHAPES, LOCATIONS, LOG_STDS, LOCATIONS, LOG_STDS)
def test_its_gradients_equal_autograd_of_torch_distributions(
    seed: int, shape: tuple[int, ...], centre: float, log_std: float, mean: float, log_prior_std: float
) -> None:
    q = make_q(seed, shape, centre, log_std)
    std = float(torch.tensor(log_prior_std, dtype=torch.float64).exp())
    value = bf.kl(q, bf.prior("normal", mean=mean, std=std), "exact")
    expected, _ = reference(q, mean, std)
    ours = torch.autograd.grad(value, [q.loc, q.log_scale])
    theirs = torch.autograd.grad(expected, [q.loc, q.log_scale])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-12)


def test_float32_loses_no_more_than_rounding() -> None:
    """One rounding of 2⁻²⁴ for each of the (at most 8) terms of size up to 2 that a weight adds."""
    torch.manual_seed(0)
    size = 10_000
    q = families.Normal(0.1 * torch.randn(size), -2 + 0.1 * torch.randn(size))
    exact = bf.kl(families.Normal(q.loc.double(), q.log_scale.double()), bf.prior("normal"))
    assert abs(float(bf.kl(q, bf.prior("normal")) - exact)) <= size * 8 * 2 * 2**-24


def test_the_kl_of_a_prior_to_itself_is_zero() -> None:
    q = families.Normal(torch.full((5,), 2.0, dtype=torch.float64), torch.full((5,), 0.5).double().log())
    assert float(bf.kl(q, bf.prior("normal", mean=2.0, std=0.5))) == pytest.approx(0, abs=1e-12)


def test_auto_and_exact_agree_and_take_a_family_made_by_name() -> None:
    torch.manual_seed(0)
    q = bf.family("normal", like=torch.randn(3, 2))
    p = bf.prior("normal", std=0.7)
    assert torch.equal(bf.kl(q, p), bf.kl(q, p, "exact"))
    bf.kl(q, p).backward()
    assert q.loc.grad is not None
    assert q.log_scale.grad is not None


def test_an_unknown_estimator_is_named_with_the_choices() -> None:
    q = bf.family("normal", like=torch.randn(3))
    with pytest.raises(ValueError, match=r"estimator='exakt' does not exist; choose from .*exact"):
        bf.kl(q, bf.prior("normal"), "exakt")
