"""The exact KL of normals: to normals against torch.distributions, to Student priors against quadrature."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import Tensor
from torch.distributions import Normal, kl_divergence

import bayesify as bf
from bayesify import families
from bayesify.divergences.faddeeva import log_one_plus

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


# -- Student priors ----------------------------------------------------------------------------------------
DISTANCES = (0.0, 1e-3, 0.1, 1.0, 5.0, 30.0, 1000.0)  # (μ − m)/s
STDS = (1e-4, 1e-2, 0.3, 1.0, 3.0, 100.0, 1e4)  # σ/s


def student_kl(mean: float, std: float, df: float) -> tuple[float, float]:
    """KL to the Student prior of loc 0 and scale 1 by quadrature, and its part that is multiplied by (ν + 1)/2."""

    def integrand(e: float) -> float:
        return stats.norm.pdf(e) * np.log1p((mean + std * e) ** 2 / df)

    bends = [(-mean + k * math.sqrt(df)) / std for k in (-10, -1, 0, 1, 10)]
    ends = sorted({-12.0, 12.0, *(min(max(b, -12.0), 12.0) for b in bends)})
    parts = [integrate.quad(integrand, a, b, limit=400, epsabs=1e-13)[0] for a, b in pairwise(ends)]
    at_loc = stats.t(df).logpdf(0.0)
    return 0.5 * (df + 1) * sum(parts) - at_loc - stats.norm(0, std).entropy(), sum(parts)


@pytest.mark.parametrize("df", [1e-3, 0.5, 1.0, 3.0, 30.0, 1000.0])
def test_the_exact_kl_to_a_student_prior_against_quadrature(df: float) -> None:
    """In float64 to 1e-9 of the terms' size; in float32 E log(1 + z²/ν) is a difference of numbers below 20, each
    rounded to 2⁻²⁴ of it a few times, and (ν + 1)/2 multiplies what remains; so are log σ and the constant rounded."""
    p = bf.prior("student_t", df=df, loc=0.3, scale=1.7)
    for distance in DISTANCES:
        for std in STDS:
            expected, tail = student_kl(distance, std, df)
            size = 1 + abs(expected) + abs(math.log(std)) + 0.5 * (df + 1) * tail
            for dtype, error in ((torch.float64, 1e-9), (torch.float32, 1e-6 + 0.5 * df * 1e-6 / size)):
                loc = torch.tensor([0.3 + 1.7 * distance], dtype=dtype)
                q = families.Normal(loc, torch.tensor([math.log(1.7 * std)], dtype=dtype))
                assert abs(float(bf.kl(q, p, "exact")) - expected) <= error * size, (distance, std, dtype)


def test_gradients_to_a_student_prior() -> None:
    """By finite differences in both regions, and finite and equal in float32, large and small weights included."""
    x = torch.tensor([0.0, 0.3, 2, 5, 7.9, 30, 0, -4, 3, 100], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0.1, 1, 0.5, 7, 0.2, 40, 9, 0.3, 300, 1e-2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log_one_plus, (x, y))
    p = bf.prior("student_t", df=3.0, loc=0.2, scale=0.7)
    loc = torch.tensor([0.0, 0.2, 0.201, 1.0, 5.0, -30.0, 1000.0]).repeat(6)
    log_scale = torch.tensor([-9.0, -4.0, -1.0, 0.0, 2.0, 5.0]).repeat_interleave(7)
    slopes = []
    for dtype in (torch.float64, torch.float32):
        q = families.Normal(loc.to(dtype).requires_grad_(), log_scale.to(dtype).requires_grad_())
        slopes.append(torch.autograd.grad(bf.kl(q, p), [q.loc, q.log_scale]))
    for a, b in zip(*slopes, strict=True):
        torch.testing.assert_close(b.double(), a, rtol=2e-6, atol=2e-6)


def test_auto_takes_the_exact_kl_to_a_student_prior_and_halves_are_widened() -> None:
    q = bf.family("normal", like=torch.randn(3, 2))
    p = bf.prior("student_t")
    assert torch.equal(bf.kl(q, p), bf.kl(q, p, "exact"))
    half = families.Normal(torch.ones(5, dtype=torch.bfloat16), torch.full((5,), -2.0, dtype=torch.bfloat16))
    kl = bf.kl(half, p)
    assert kl.dtype == torch.float32 and kl.isfinite()
