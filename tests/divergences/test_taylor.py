"""The Taylor estimator: the corrected Example 1 of paper 1, convergence of the series, and its refusals."""

import math
from itertools import pairwise

import pytest
import torch
from kl_pairs import by_quadrature, make_family, make_prior, pairs_with
from scipy.integrate import quad
from scipy.stats import norm

import bayesify as bf
from bayesify.divergences.taylor import taylor_mean
from bayesify.families import FAMILIES, Family
from bayesify.laws.features import power

SIGMAS = norm.isf(1e-6 / 2)


def normal(mean: float, std: float) -> Family:
    return FAMILIES["normal"](torch.tensor([mean]).double(), log_scale=torch.tensor([math.log(std)]).double())


def expected_log(order: int, about: float | str) -> float:
    q = normal(2.0, 0.3)
    moments = [q.expectation(power(k)) for k in range(order + 1)]
    return taylor_mean(q, torch.log, moments, about).item()  # type: ignore[arg-type]


def test_example_1() -> None:
    """E log w, w ~ N(2, 0.3²): .681485; with K = 4 about the mean .681517, about 1 .487258 (FORMULAS 2.5)."""
    true, _ = quad(lambda w: math.log(w) * norm.pdf(w, 2, 0.3), 0.2, 4)
    assert true == pytest.approx(0.681485, abs=1e-6)
    assert expected_log(4, "mean") == pytest.approx(0.681517, abs=1e-6)
    assert expected_log(4, 1.0) == pytest.approx(0.487258, abs=1e-6)


def test_the_series_about_a_number_and_about_the_mean_are_the_same_polynomial_there() -> None:
    assert expected_log(5, 2.0) == pytest.approx(expected_log(5, "mean"), rel=1e-12)


@pytest.mark.parametrize("about", ["mean", 0.0, 0.1])
def test_higher_orders_come_closer(about: float | str) -> None:
    """A logistic prior (radius π about its location), N(0.2, 0.3²): two orders gain more than a factor of two."""
    q, p = normal(0.2, 0.3), bf.prior("logistic")
    noise = q.noise((400,), torch.Generator().manual_seed(0))
    right = bf.kl(q, p, "direct", noise=noise)
    errors = [
        (bf.kl(q, p, "taylor", noise=noise, order=order, about=about) - right).abs().item()
        for order in (2, 4, 6, 8)
    ]
    assert all(after < before / 2 for before, after in pairwise(errors))
    assert errors[-1] < 1e-6


@pytest.mark.parametrize("estimator_options", [{"about": "mean"}, {"about": 0.1}])
def test_its_gradient_is_that_of_the_polynomial(estimator_options: dict[str, float | str]) -> None:
    """Against autograd of the mean over draws of the same polynomial, order 6, where truncation is below 1e-4."""
    p = bf.prior("logistic")
    grads = []
    for estimator, options in (("taylor", {"order": 8, **estimator_options}), ("direct", {})):
        q = bf.family("normal", like=torch.tensor([0.3, -0.2]).double(), init_std=0.5)
        noise = q.distribution().noise((50,), torch.Generator().manual_seed(0))
        bf.kl(q, p, estimator, noise=noise, **options).backward()
        grads.append([parameter.grad for parameter in q.parameters()])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("family", "prior"), [("log_normal", "gamma"), ("log_normal", "inverse_gaussian")])
def test_it_serves_families_of_log_weights(family: str, prior: str) -> None:
    """w^p = e^{px} has a series that converges everywhere; 2,000 draws and order 5 against quadrature."""
    q, p, generator = make_family(family), make_prior(prior), torch.Generator().manual_seed(0)
    expected = by_quadrature(family, prior)
    with torch.no_grad():
        value = bf.kl(q, p, "taylor", 2000, generator, order=5).item()
    assert abs(value - expected.kl) < SIGMAS * math.sqrt(expected.log_prior_var / 2000) + 1e-3


def test_draws_outside_the_region_of_convergence_raise() -> None:
    q = normal(0.2, 0.3)
    with pytest.raises(
        ValueError, match=r"taylor' about 'mean' does not converge: 100 % .* use estimator='stream'"
    ):
        bf.kl(q, bf.prior("horseshoe"), "taylor", num_draws=1000)  # singular at 0, two thirds of a std away
    with pytest.raises(ValueError, match="about 9.0 does not converge"):
        bf.kl(q, bf.prior("logistic", scale=0.1), "taylor", about=9.0)
    assert torch.isfinite(bf.kl(normal(2.0, 0.1), bf.prior("horseshoe"), "taylor", num_draws=1000))


@pytest.mark.parametrize(("family", "prior"), pairs_with("taylor"))
def test_every_pair_that_lists_it_takes_it(family: str, prior: str) -> None:
    """Little noise, so that the draws lie in every region of convergence; order 4 then has no error to speak of."""
    q, p = make_family(family, torch.full((3,), 2.0, dtype=torch.float64)), make_prior(prior)
    noise = q.noise((20,), torch.Generator().manual_seed(0)).abs().clamp(0.1, 3) / 100
    value = bf.kl(q, p, "taylor", noise=noise, order=4)
    torch.testing.assert_close(value, bf.kl(q, p, "direct", noise=noise), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "prior", "message"),
    [
        ("normal", "normal", "is not needed: .* use estimator='repar'"),
        ("gamma", "logistic", "needs w or log .w. = loc . scale ξ, which the gamma family is not"),
        ("normal", "radial", "needs independent entries"),
        ("normal", "log_uniform", "the gradient of log .w. at draws has no finite mean"),
    ],
)
def test_refusals(family: str, prior: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bf.kl(make_family(family), make_prior(prior), "taylor")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 0}, "order=0 must be a positive whole number"),
        ({"order": 2.5}, "order=2.5 must be a positive whole number"),
        ({"about": "median"}, "about='median' must be 'mean' or a number"),
        ({"about": math.inf}, "about=inf must be 'mean' or a number"),
        ({"orders": 3}, "orders=3: the estimator 'taylor' has no such option; choose from order, about"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bf.kl(make_family("normal"), bf.prior("logistic"), "taylor", **options)
