"""Every law: mass, terms, moments and entropy by quadrature of its own density, and its draws.

That the densities are right, the tests of families and priors say, which hold them against scipy.
"""

import math

import pytest
import torch
from torch import Generator, Tensor

from bayesify import laws
from bayesify.laws import Law, Terms
from bayesify.laws.features import absolute, log, power

LAWS: list[Law] = [
    laws.Normal(),
    laws.Laplace(),
    laws.Logistic(),
    laws.Horseshoe(),
    laws.Error(1.5),
    laws.Error(0.5),
    laws.LogGamma(torch.tensor(2.5, dtype=torch.float64)),
    laws.Radial(()),
    laws.StudentT(3.5),
    laws.Uniform(),
    laws.RandomSign(),
    laws.Exponential(),
    laws.Gamma(2.5),
    laws.InverseGamma(3.5),
    laws.InverseGaussian(),
    laws.InverseGaussian(2.0),
    laws.Rayleigh(),
    laws.Weibull(1.7),
]
DENSITIES = [law for law in LAWS if not isinstance(law, laws.RandomSign)]


def name(law: Law) -> str:
    return type(law).__name__


def test_every_law_has_a_case() -> None:
    kinds = {kind for name in laws.__all__ if isinstance(kind := getattr(laws, name), type)}
    assert {k for k in kinds if issubclass(k, Law)} - {Law, laws.PowerOfGamma} == {type(law) for law in LAWS}


def grid(law: Law) -> tuple[Tensor, Tensor]:
    """Points ±e^y and the mass of each by the trapezoidal rule; (−1, 1) for the uniform law, which ends there."""
    if isinstance(law, laws.Uniform):
        x = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
        x = (x[1:] + x[:-1]) / 2
        return x, law.log_prob(x).exp() * (x[1] - x[0])
    y = torch.linspace(-80, 40, 60_001, dtype=torch.float64)
    x = torch.cat([y.exp(), -y.exp()]) if law.lower < 0 else y.exp()
    mass = (law.log_prob(x) + x.abs().log()).exp() * (y[1] - y[0])
    return x[mass > 0], mass[mass > 0]


@pytest.mark.parametrize("law", DENSITIES, ids=name)
def test_mass_entropy_and_moments(law: Law) -> None:
    x, mass = grid(law)
    assert mass.sum().item() == pytest.approx(1, rel=1e-6)
    if not (isinstance(law, laws.InverseGaussian) and law.concentration != 1):
        entropy = (mass * law.log_prob(x)).sum().item()
        assert float(law.neg_entropy()) == pytest.approx(entropy, rel=1e-5, abs=1e-6)
    for feature in (power(1), power(2), power(3), absolute(1), absolute(0.5), power(-1), log(1), log(2)):
        found = law.expectation(feature)
        if found is not None and float(found) != math.inf:
            by_quadrature = (mass * feature(x)).sum().item()
            assert float(found) == pytest.approx(by_quadrature, rel=1e-4, abs=1e-4), feature


@pytest.mark.parametrize("law", [law for law in LAWS if law.terms() is not None], ids=name)
def test_terms_add_up_to_the_density_also_where_the_law_is_moved(law: Law) -> None:
    terms = law.terms()
    assert terms is not None
    x = torch.linspace(0.1, 4, 20, dtype=torch.float64)
    if law.lower < 0:
        x = torch.cat([x, -x])
    torch.testing.assert_close(terms(x), law.log_prob(x))
    for loc, scale in ((0.0, 1.0), (0.0, 1.7), (0.3, 0.8)):
        moved = terms.moved(loc, scale)
        if moved is None:
            assert loc and not all(
                f.kind == "power" and f.power == int(f.power) >= 0 for f in terms.coefficients
            )
        elif law.lower < 0 or not loc:
            torch.testing.assert_close(moved(loc + scale * x), law.log_prob(x) - math.log(scale))


def test_powers_of_a_logarithm_move_with_the_scale() -> None:
    """log²(w/s) = log² w − 2 log s log w + log² s."""
    moved = Terms(0.5, {log(2): -1.0}).moved(0.0, 2.0)
    w = torch.tensor([0.3, 5.0], dtype=torch.float64)
    assert moved is not None
    torch.testing.assert_close(moved(w), 0.5 - (w / 2).log().square() - math.log(2))


@pytest.mark.parametrize("law", [law for law in LAWS if law.lower == 0], ids=name)
def test_outside_the_support_the_density_is_zero_and_flat(law: Law) -> None:
    x = torch.tensor([-1.0, -1e-3, 1.0], dtype=torch.float64, requires_grad=True)
    density = law.log_prob(x)
    assert (density[:2] == -math.inf).all() and density[2].isfinite()
    density[2].backward()
    assert x.grad is not None and (x.grad[:2] == 0).all()


@pytest.mark.parametrize("law", LAWS, ids=name)
def test_draws_lie_in_the_support_and_obey_the_generator(law: Law) -> None:
    like = torch.zeros(2, dtype=torch.float32)
    first, again, other = (law.sample((500,), like, Generator().manual_seed(s)) for s in (0, 0, 1))
    assert first.shape == (500,) and first.dtype == torch.float32
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert law.log_prob(first).isfinite().all()
    assert (first < 0).any() == (law.lower < 0)


def test_the_inverse_gaussian_says_which_entropy_it_does_not_know() -> None:
    with pytest.raises(ValueError, match=r"entropy of IG\(1, 2.0\) is not known here: use concentration=1"):
        laws.InverseGaussian(2.0).neg_entropy()
