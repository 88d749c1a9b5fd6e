"""Every registered family against scipy: densities, draws, moments, entropies, expectations."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from family_cases import (
    ALL,
    CASES,
    FAILURE_RATE,
    IDS,
    INDEPENDENT,
    INDEPENDENT_IDS,
    LIKE,
    distribution,
    magnitudes,
    noise_law,
    weight_laws,
)
from scipy import special, stats
from torch import Tensor

from bayesify.families import FAMILIES
from bayesify.laws.features import Feature, absolute, log, power

NUM_DRAWS = 20_000

# Below exponent a, E |ξ|^{−p} is finite for p < a; in the tails E |ξ|^p is finite for p < b.
EXPONENTS = {
    "horseshoe": (1, 1),
    "std_wald": (math.inf, math.inf),
    "rayleigh": (2, math.inf),
    "exponential": (1, math.inf),
}
FEATURES = [power(p) for p in (1, 2, -1, -2, 0.5, 3)] + [absolute(1), absolute(0.5), log(1), log(2)]


def test_every_registered_family_has_a_case() -> None:
    assert set(CASES) == set(FAMILIES)
    assert all(name == kind.name and kind.__doc__ for name, kind in FAMILIES.items())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("name", "options"), INDEPENDENT, ids=INDEPENDENT_IDS)
def test_the_density_is_that_of_scipy(name: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    """float32: the rounding of w and of scale moves log q by about ε k, k the concentration (at most 500 here)."""
    q = distribution(name, options, LIKE.to(dtype))
    w = q.rsample(50, torch.Generator().manual_seed(0))
    found = q.log_prob(w).double().flatten(1)
    assert found.shape == (50, 6)
    inputs = magnitudes(q, w).double().flatten(1).numpy()
    expected = np.stack([law.logpdf(x) for law, x in zip(weight_laws(name, q), inputs.T, strict=True)], 1)
    tolerance = {torch.float64: 1e-7 if name == "horseshoe" else 1e-9, torch.float32: 3e-4}[dtype]
    np.testing.assert_allclose(found, expected, rtol=tolerance / 10, atol=tolerance)


@pytest.mark.parametrize(("name", "options"), INDEPENDENT, ids=INDEPENDENT_IDS)
def test_draws_have_the_law(name: str, options: dict[str, Any]) -> None:
    """Kolmogorov–Smirnov, 20,000 draws of each of 6 entries in float32, failure rate 1e-6 over all."""
    q = distribution(name, options, LIKE.float())
    w = magnitudes(q, q.rsample(NUM_DRAWS, torch.Generator().manual_seed(1))).double().flatten(1)
    for law, draws in zip(weight_laws(name, q), w.T.numpy(), strict=True):
        assert stats.kstest(draws, law.cdf).pvalue > FAILURE_RATE / 6


@pytest.mark.parametrize(("name", "options"), INDEPENDENT, ids=INDEPENDENT_IDS)
def test_mean_and_variance(name: str, options: dict[str, Any]) -> None:
    q = distribution(name, options)
    laws = weight_laws(name, q)
    mean, variance = magnitudes(q, q.mean).flatten(), q.variance.flatten()
    np.testing.assert_allclose(mean, [law.mean for law in laws], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(variance, [law.var for law in laws], rtol=1e-6)


@pytest.mark.parametrize(("name", "options"), INDEPENDENT, ids=INDEPENDENT_IDS)
def test_entropy(name: str, options: dict[str, Any]) -> None:
    q = distribution(name, options)
    assert float(q.noise_neg_entropy()) == pytest.approx(noise_law(name, q).neg_entropy, rel=1e-6, abs=1e-8)
    total = sum(law.neg_entropy for law in weight_laws(name, q))
    assert float(q.neg_entropy()) == pytest.approx(total, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(("name", "options"), INDEPENDENT, ids=INDEPENDENT_IDS)
def test_expectations_of_features_by_quadrature(name: str, options: dict[str, Any]) -> None:
    q = distribution(name, options)
    real = name in ("log_normal", "log_gamma") or q.support == "real"
    known = 0
    for feature in FEATURES:
        found = q.expectation(feature)
        if feature.kind == "power" and feature.power % 1 and real:
            assert found is None  # no real number where ξ < 0
            continue
        if found is None:
            continue
        known += 1
        if infinite(name, q, feature):
            assert found == math.inf, feature
        else:
            assert float(found) == pytest.approx(quadrature(name, q, feature), rel=1e-6, abs=1e-7), feature
    assert known >= (5 if name == "log_gamma" else len(FEATURES) - 1)


def infinite(name: str, q: Any, feature: Feature) -> bool:
    k = float(getattr(q, "concentration", 1.0))
    shaped = {"gamma": (k, math.inf), "erlang": (k, math.inf), "exp_gamma": (k, math.inf)}
    shaped |= {"weibull": (k, math.inf), "inverse_gamma": (math.inf, k)}
    near_zero, tails = {**shaped, **EXPONENTS}.get(name, (1, math.inf))
    return feature.kind != "log" and (feature.power <= -near_zero or feature.power >= tails)


def quadrature(name: str, q: Any, feature: Feature) -> float:
    """∫ t(ξ) q₀(ξ) dξ over ±e^y: the trapezoidal rule converges exponentially for densities smooth in y."""
    y = np.linspace(-120, 120, 96_001)
    law, total = noise_law(name, q), 0.0
    for sign in (1, -1):
        x = sign * np.exp(y)
        with np.errstate(all="ignore"):
            weight = np.exp(law.logpdf(x) + y)
            values = feature(torch.from_numpy(x)).numpy()
        used = weight > 0
        total += float((weight[used] * values[used]).sum() * (y[1] - y[0]))
    return total


# -- radial: one draw couples the whole tensor --------------------------------------------------------------
def radial(shape: tuple[int, ...]) -> Any:
    like = torch.linspace(-1, 2, math.prod(shape), dtype=torch.float64).reshape(shape)
    return distribution("radial", {"init_std": 0.3}, like)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (6,), (2, 3), (4, 5, 5)])
def test_radial_density(shape: tuple[int, ...]) -> None:
    """A half-normal radius, spread evenly over the sphere of that radius."""
    q = radial(shape)
    w = q.rsample(7, torch.Generator().manual_seed(0))
    z = ((w - q.loc) / q.scale).reshape(7, -1).numpy()
    r, d = np.linalg.norm(z, axis=1), z.shape[1]
    area = math.log(2) + d / 2 * math.log(math.pi) - special.gammaln(d / 2) + (d - 1) * np.log(r)
    expected = stats.halfnorm.logpdf(r) - area - q.log_scale.sum().item()
    found = q.log_prob(w)
    assert found.shape == (7,)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    torch.testing.assert_close(q.log_prob(w[0]), found[0])


def test_radial_of_one_entry_is_normal() -> None:
    q = radial((1,))
    w = torch.linspace(-3, 3, 5, dtype=torch.float64)[:, None]
    normal = stats.norm(q.loc.item(), q.scale.item())
    np.testing.assert_allclose(q.log_prob(w), normal.logpdf(w.numpy())[:, 0], rtol=1e-12)
    assert float(q.neg_entropy()) == pytest.approx(-normal.entropy(), rel=1e-12)


def test_radial_draws_have_the_radial_law() -> None:
    """20,000 draws: ‖ξ‖ half-normal, ξ_j²/‖ξ‖² ~ Beta(½, (D − 1)/2), by Kolmogorov–Smirnov at 1e-6 over all."""
    q = radial((2, 3))
    xi = ((q.rsample(NUM_DRAWS, torch.Generator().manual_seed(2)) - q.loc) / q.scale).flatten(1)
    r = xi.norm(dim=1)
    assert stats.kstest(r.numpy(), stats.halfnorm.cdf).pvalue > FAILURE_RATE / 7
    for entry in (xi / r[:, None]).square().T.numpy():
        assert stats.kstest(entry, stats.beta(0.5, 2.5).cdf).pvalue > FAILURE_RATE / 7


def test_radial_entropy_against_monte_carlo() -> None:
    """The mean of log q over n draws is normal with the sample's standard error; n = 200,000."""
    q = radial((2, 3))
    values = q.log_prob(q.rsample(200_000, torch.Generator().manual_seed(3)))
    error = values.std() / math.sqrt(len(values))
    assert abs(values.mean() - q.neg_entropy()) < stats.norm.isf(FAILURE_RATE / 2) * error
    six = distribution("radial", {}, torch.ones(6, dtype=torch.float64))
    assert six.noise_neg_entropy() == pytest.approx(-0.9841, abs=5e-5)  # FORMULAS 2.1


@pytest.mark.parametrize("feature", FEATURES)
def test_radial_expectations(feature: Feature) -> None:
    """ξ_j = ρ u_j: quadrature over ρ half-normal and u_j² ~ Beta(½, (D − 1)/2)."""
    q = radial((2, 3))
    found = q.expectation(feature)
    if feature.kind == "power" and feature.power % 1:
        assert found is None
    elif feature.kind != "log" and feature.power <= -1:
        assert found == math.inf
    elif feature == power(1) or feature == power(3):
        assert found == 0
    else:
        y = np.linspace(-45, 5, 4001)[:, None]
        radius = np.exp(stats.halfnorm.logpdf(np.exp(y)) + y)
        v = np.linspace(-45, 45, 4001)[None]  # u² = 1/(1 + e^{−v})
        share = stats.beta(0.5, 2.5).pdf(special.expit(v)) * special.expit(v) * special.expit(-v)
        values = feature(torch.from_numpy(np.exp(y) * np.sqrt(special.expit(v)))).numpy()
        total = (radius * share * values).sum() * (y[1, 0] - y[0, 0]) * (v[0, 1] - v[0, 0])
        assert float(found) == pytest.approx(total, rel=1e-6)


# -- exact sums ----------------------------------------------------------------------------------------------
SUMS: list[tuple[str, dict[str, Any], list[Feature]]] = [
    ("normal", {}, [power(1), power(2)]),
    ("log_normal", {}, [power(2), power(1)]),
    ("laplace", {}, [power(1)]),
    ("laplace", {}, [absolute(1)]),
    ("exponential", {}, [power(1)]),
    ("gamma", {"concentration": 2.5}, [power(1)]),
    ("erlang", {"concentration": 3}, [power(1)]),
    ("exp_gamma", {"concentration": 2.5}, [power(1)]),
    ("inverse_gamma", {"concentration": 2.5}, [power(-1)]),
    ("rayleigh", {}, [power(2)]),
    ("weibull", {"concentration": 2.5}, [power(2.5)]),
    ("error", {"tail": 3.0}, [absolute(2 / 3)]),
    ("zero_mean_error", {"tail": 0.5}, [power(4), absolute(4)]),
    ("std_wald", {}, [power(1), power(-1)]),
]


@pytest.mark.parametrize("n", [1, 2, 10, 1000])
@pytest.mark.parametrize(("name", "options", "features"), SUMS)
def test_sums_have_the_law_of_sums_of_draws(
    name: str, options: dict[str, Any], features: list[Feature], n: int
) -> None:
    """Two-sample Kolmogorov–Smirnov, 2,000 sums each way: every sum, and for pairs the standardised a ± b."""
    q = distribution(name, options, torch.ones(2000, dtype=torch.float64))
    generator = torch.Generator().manual_seed(4)
    found = q.sums(features, n, generator)
    noise = q.noise((n,), generator)
    brute = [feature(noise).sum(0) for feature in features]
    assert found is not None and all(s.shape == q.shape and not s.requires_grad for s in found)
    pairs = list(zip(found, brute, strict=True))
    if len(pairs) == 2:
        pairs += [joint(*found, *brute, sign) for sign in (1, -1)]
    for a, b in pairs:
        assert stats.ks_2samp(a.numpy(), b.numpy()).pvalue > FAILURE_RATE / len(pairs)


def joint(a: Tensor, b: Tensor, brute_a: Tensor, brute_b: Tensor, sign: int) -> tuple[Tensor, Tensor]:
    scale_a, scale_b = 1 / brute_a.std(), sign / brute_b.std()
    return scale_a * a + scale_b * b, scale_a * brute_a + scale_b * brute_b


@pytest.mark.parametrize(("name", "options"), ALL, ids=IDS)
def test_sums_without_a_known_law_are_refused(name: str, options: dict[str, Any]) -> None:
    q = distribution(name, options)
    assert q.sums([power(1), log(1)], 10) is None
    if name in ("logistic", "horseshoe", "radial", "log_gamma"):
        assert q.sums([power(1)], 10) is None
