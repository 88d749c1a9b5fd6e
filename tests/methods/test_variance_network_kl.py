"""The KL of variance networks against quadrature (paper 5, eqs. 9, 10, 25 and appendix C, corrected)."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, special
from torch import Tensor

import bayesify as bf
from bayesify.divergences.faddeeva import faddeeva, log_distance
from bayesify.divergences.variance import (
    APPROXIMATIONS,
    AT_ZERO_MEAN,
    sigmoid,
    stochastic,
    variance_log_uniform,
    variance_student,
)
from bayesify.families import RandomTensor
from bayesify.families.variance import Additive, Multiplicative, ZeroMeanNormal
from bayesify.families.zero_mean import ZeroMeanBernoulli, ZeroMeanUniform

PRIOR = bf.prior("log_uniform", log_constant=AT_ZERO_MEAN)
LOG_ALPHAS = torch.linspace(-20, 20, 81, dtype=torch.float64)


def exact_kl(log_alpha: float) -> float:
    """∫₀^u D(√v)/√v dv in the variable log v."""
    end = -log_alpha - math.log(2)
    return integrate.quad(
        lambda t: special.dawsn(math.exp(t / 2)) * math.exp(t / 2), end - 80, end, limit=500, epsabs=1e-12
    )[0]


def weightwise(log_alphas: Tensor) -> RandomTensor:
    """One weight for each α."""
    q = RandomTensor(Multiplicative, torch.full_like(log_alphas, 0.3), own_centre=True, per="weight")
    with torch.no_grad():
        q.log_alpha.copy_(log_alphas)
    return q


def values_and_slopes(q: RandomTensor, function: Any, prior: Any) -> tuple[Tensor, Tensor]:
    """The KL of every weight, and its derivative in log α."""
    parts = []
    for i in range(len(q.log_alpha)):
        one = Multiplicative(
            q.centre[i], q.log_alpha[i], q.mean_gate, q.noise_gate, min_log_alpha=-20.0, max_log_alpha=20.0
        )
        parts.append(function(one, prior))
    values = torch.stack(parts)
    (slopes,) = torch.autograd.grad(values.sum(), q.log_alpha)
    return values.detach().double(), slopes.double()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_exact_kl_and_gradient_over_the_whole_range(dtype: torch.dtype) -> None:
    values, slopes = values_and_slopes(weightwise(LOG_ALPHAS.to(dtype)), variance_log_uniform, PRIOR)
    expected = torch.tensor([exact_kl(a) for a in LOG_ALPHAS.tolist()], dtype=torch.float64)
    root = np.sqrt(0.5 * np.exp(-LOG_ALPHAS.numpy()))
    torch.testing.assert_close(values, expected, atol=1e-6, rtol=3e-7)
    torch.testing.assert_close(slopes, torch.from_numpy(-root * special.dawsn(root)), atol=1e-6, rtol=1e-6)
    assert (values.diff() < 1e-6).all()  # decreasing in α


BF16_ROUNDING = 2**-8  # relative, of one number


@pytest.mark.parametrize("prior", [PRIOR, bf.prior("student_t", df=1e-16)], ids=["log_uniform", "student"])
def test_bfloat16_parameters_have_the_kl_of_what_they_hold(prior: Any) -> None:
    """Value as exact as in float32; the gradient in log α is a bfloat16 number and so rounded once."""
    function = variance_log_uniform if prior is PRIOR else variance_student
    log_alphas = LOG_ALPHAS.bfloat16()  # −19.5 and the others of the grid are among its numbers
    values, slopes = values_and_slopes(weightwise(log_alphas), function, prior)
    expected, slopes_there = values_and_slopes(weightwise(log_alphas.double()), function, prior)
    torch.testing.assert_close(values, expected, atol=1e-6 if prior is PRIOR else 1e-5, rtol=3e-7)
    torch.testing.assert_close(slopes, slopes_there, atol=1e-6, rtol=BF16_ROUNDING)
    if prior is PRIOR:
        exact = torch.tensor([exact_kl(a) for a in log_alphas.tolist()], dtype=torch.float64)
        root = np.sqrt(0.5 * np.exp(-log_alphas.double().numpy()))
        torch.testing.assert_close(values, exact, atol=1e-6, rtol=3e-7)
        slope = torch.from_numpy(-root * special.dawsn(root))
        torch.testing.assert_close(slopes, slope, atol=1e-6, rtol=BF16_ROUNDING)


def test_bfloat16_additive_weights_have_the_kl_of_what_they_hold() -> None:
    """log α = 2 log σ − 2 log |c| over the range, c and log σ as bfloat16 holds them; dKL/dlog σ = −2√u D(√u)."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(len(LOG_ALPHAS), generator=generator).bfloat16()
    log_stds = (0.5 * LOG_ALPHAS + centres.double().abs().log()).bfloat16().requires_grad_()
    gate = torch.ones((), dtype=torch.bfloat16)
    qs = [Additive(c, s, gate, gate) for c, s in zip(centres, log_stds, strict=True)]
    values = torch.stack([variance_log_uniform(q, PRIOR) for q in qs])
    (slopes,) = torch.autograd.grad(values.sum(), log_stds)
    held = (2 * log_stds.detach().double() - 2 * centres.double().abs().log()).tolist()
    root = np.sqrt(0.5 * np.exp(-np.array(held)))
    exact = torch.tensor([exact_kl(a) for a in held], dtype=torch.float64)
    torch.testing.assert_close(values.detach().double(), exact, atol=1e-6, rtol=3e-7)
    slope = torch.from_numpy(-2 * root * special.dawsn(root))
    torch.testing.assert_close(slopes.double(), slope, atol=1e-6, rtol=BF16_ROUNDING)


@pytest.mark.parametrize("kind", [Multiplicative, Additive, ZeroMeanNormal])
def test_bfloat16_weights_draw_and_divide_in_their_own_precision(kind: Any) -> None:
    q = RandomTensor(kind, torch.randn(4, 3).bfloat16(), own_centre=True)
    kl = bf.kl(q, PRIOR)
    assert kl.dtype == torch.float32 and kl.isfinite()
    assert {t.dtype for t in (q.rsample(), q.mean, q.variance, q.distribution().scale)} == {torch.bfloat16}


@pytest.mark.parametrize("per", ["layer", "neuron", "weight"])
def test_a_shared_alpha_counts_once_for_each_weight(per: str) -> None:
    like = torch.randn(4, 3, dtype=torch.float64)
    q = RandomTensor(Multiplicative, like, own_centre=True, per=per, init_log_alpha=-1.5)
    assert float(bf.kl(q, PRIOR).detach()) == pytest.approx(12 * exact_kl(-1.5), abs=1e-6)
    additive = RandomTensor(Additive, like, own_centre=True)
    with torch.no_grad():
        additive.log_std.copy_(-0.75 + like.abs().log())
    assert float(bf.kl(additive, PRIOR).detach()) == pytest.approx(12 * exact_kl(-1.5), abs=1e-6)


@pytest.mark.parametrize("kind", [ZeroMeanNormal, ZeroMeanUniform, ZeroMeanBernoulli])
def test_zero_mean_layers_have_a_constant_kl(kind: Any) -> None:
    """For every σ the same, without a gradient; 0 for the normal with the constant that papers subtract."""
    values = [
        float(bf.kl(RandomTensor(kind, s * torch.ones(5), own_centre=True), PRIOR)) for s in (0.01, 1, 7)
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-5) and values[1] == pytest.approx(values[2], abs=1e-5)
    if kind is ZeroMeanNormal:
        assert values == [0, 0, 0]
        sample = np.random.default_rng(0).standard_normal(10**6) * 3
        density = -0.5 * (sample / 3) ** 2 - math.log(3 * math.sqrt(2 * math.pi))
        by_draws = np.mean(density + np.log(np.abs(sample)) - AT_ZERO_MEAN)
        assert abs(by_draws) < 5 * 1.2 / 1000  # std of the summand 1.2


def test_the_constant_of_the_prior_is_that_of_bf_kl() -> None:
    """The additive family and the normal one have the same KL to the same prior."""
    like = torch.randn(5, dtype=torch.float64)
    q = RandomTensor(Additive, like, own_centre=True)
    normal = bf.family("normal", like)
    with torch.no_grad():
        normal.log_scale.copy_(q.log_std)
    for p in (PRIOR, bf.prior("log_uniform")):
        torch.testing.assert_close(bf.kl(q, p), bf.kl(normal, p))


def test_the_sigmoid_approximation() -> None:
    grid = torch.linspace(-12, 12, 97, dtype=torch.float64)
    values, _ = values_and_slopes(weightwise(grid), sigmoid, PRIOR)
    error = values - torch.tensor([exact_kl(a) for a in grid.tolist()], dtype=torch.float64)
    assert 0.009 < error.abs().max() < 0.0095
    assert values[-1].abs() < 1e-3 and values[0] > 5  # falls to 0 at α = ∞, as the KL does


def test_the_stochastic_estimator_has_the_right_mean() -> None:
    """4·10⁵ draws at α = 1, std of one draw about 1.1: within 6 standard errors."""
    q = RandomTensor(Multiplicative, torch.ones(400_000), own_centre=True, init_log_alpha=0.0)
    mean = float(stochastic(q.distribution(), PRIOR).detach()) / 400_000
    assert abs(mean - exact_kl(0.0)) < 6 * 1.1 / math.sqrt(400_000)


def test_ard_is_the_kl_to_the_best_normal_prior() -> None:
    q = RandomTensor(Additive, torch.tensor([0.7], dtype=torch.float64), own_centre=True)
    variance = float((q.mean.square() + q.variance).detach())
    normal = bf.family("normal", q.centre.detach())
    with torch.no_grad():
        normal.log_scale.copy_(q.log_std)
    best = bf.kl(normal, bf.prior("normal", std=math.sqrt(variance)))
    torch.testing.assert_close(APPROXIMATIONS["ard"](q.distribution(), PRIOR), best)


# -- Student prior -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_faddeeva_against_scipy(dtype: torch.dtype, error: float) -> None:
    x = torch.cat([torch.logspace(-6, 5, 100, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)])
    y = torch.cat([torch.logspace(-10, 5, 40, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)])
    x, y = torch.meshgrid(x, y, indexing="ij")
    real, imaginary = faddeeva(x.to(dtype), y.to(dtype))
    expected = special.wofz((x + 1j * y).numpy())
    torch.testing.assert_close(real.double(), torch.from_numpy(expected.real), atol=error, rtol=0)
    relative = (imaginary.double() - torch.from_numpy(expected.imag))[:-1] / torch.from_numpy(expected.imag)[
        :-1
    ]
    assert relative.abs().max() < error


def test_gradients_of_log_distance() -> None:
    x = torch.tensor([0.0, 0.3, 2.0, 9.0], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0.1, 1.0, 0.5, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log_distance, (x, y))


def student_kl(mean: float, std: float, df: float, scale: float) -> float:
    """By quadrature in w, split at the kinks."""
    p = bf.prior("student_t", df=df, scale=scale)

    def integrand(e: float) -> float:
        w = torch.tensor(mean + std * e, dtype=torch.float64)
        return math.exp(-0.5 * e * e) / math.sqrt(2 * math.pi) * -float(p.log_prob(w))

    points = [-mean / std] if abs(mean / std) < 12 else None
    cross = integrate.quad(integrand, -12, 12, points=points, limit=1000, epsabs=1e-11)[0]
    return cross - 0.5 * math.log(2 * math.pi * math.e * std**2)


@pytest.mark.parametrize("df", [1e-16, 0.3, 3.0, 40.0])
@pytest.mark.parametrize("log_alpha", [-6.0, 0.0, 6.0])
def test_student_kl_against_quadrature(df: float, log_alpha: float) -> None:
    for dtype, error in ((torch.float64, 1e-8), (torch.float32, 3e-6)):
        like = torch.tensor([0.4, -2.0], dtype=dtype)
        q = RandomTensor(Multiplicative, like, own_centre=True, init_log_alpha=log_alpha)
        std = math.exp(0.5 * log_alpha)
        expected = sum(student_kl(m, std * abs(m), df, 1.5) for m in (0.4, -2.0))
        value = float(variance_student(q.distribution(), bf.prior("student_t", df=df, scale=1.5)).detach())
        assert value == pytest.approx(expected, abs=error * (10 + df))  # the terms are about ν in size


def test_student_gradients_by_finite_differences_and_their_limit() -> None:
    like = torch.tensor([0.4, -2.0, 1e-3], dtype=torch.float64)
    q = RandomTensor(Multiplicative, like, own_centre=True, per="weight", init_log_alpha=-1.0)
    buffers, numbers = dict(q.named_buffers()), q.numbers

    def kl(centre: Tensor, log_alpha: Tensor, df: float = 2.0) -> Tensor:
        family = Multiplicative(centre, log_alpha, **buffers, **numbers)
        return variance_student(family, bf.prior("student_t", df=df))

    assert torch.autograd.gradcheck(kl, (q.centre, q.log_alpha))
    by_alpha = torch.autograd.grad(kl(q.centre, q.log_alpha, 1e-16), q.log_alpha)[0]
    limit = torch.autograd.grad(bf.kl(q, PRIOR), q.log_alpha)[0]
    torch.testing.assert_close(by_alpha, limit, atol=1e-5, rtol=0)  # √ν is not small against the third weight


@pytest.mark.parametrize("log_alpha", [-20.0, -12.0, 20.0])
def test_student_gradients_are_finite_in_float32(log_alpha: float) -> None:
    q = RandomTensor(Multiplicative, torch.tensor([1e-6, 1.0]), own_centre=True, init_log_alpha=log_alpha)
    bf.kl(q, bf.prior("student_t", df=1e-16)).backward()
    assert q.log_alpha.grad.isfinite().all() and q.centre.grad.isfinite().all()
    slope = -math.sqrt(0.5 * math.exp(-log_alpha)) * special.dawsn(math.sqrt(0.5 * math.exp(-log_alpha)))
    assert float(q.log_alpha.grad) == pytest.approx(2 * slope, rel=1e-4, abs=1e-6)


def test_a_student_prior_away_from_zero_is_refused() -> None:
    q = RandomTensor(Multiplicative, torch.ones(2), own_centre=True)
    with pytest.raises(ValueError, match=r"needs a Student prior with loc=0, not loc=1.0"):
        bf.kl(q, bf.prior("student_t", loc=1.0))
