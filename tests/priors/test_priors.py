"""Every registered prior: density against scipy, total mass, terms, support, options."""

import copy
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats

import bayesify as bf
from bayesify.features import absolute, log, power
from bayesify.priors import PRIORS, Prior

# name -> options and the same density by scipy, for priors of independent numbers
LAWS: dict[str, list[tuple[dict[str, Any], Callable[[Any], Any]]]] = {
    "normal": [({}, stats.norm().logpdf), ({"mean": 0.5, "std": 2.0}, stats.norm(0.5, 2.0).logpdf)],
    "laplace": [
        ({}, stats.laplace().logpdf),
        ({"loc": -0.3, "scale": 2.0}, stats.laplace(-0.3, 2.0).logpdf),
    ],
    "logistic": [({"loc": 0.3, "scale": 0.5}, stats.logistic(0.3, 0.5).logpdf)],
    "student_t": [({"df": 2.5, "loc": 0.3, "scale": 0.5}, stats.t(2.5, 0.3, 0.5).logpdf)],
    "horseshoe": [({"scale": 0.7}, lambda w: horseshoe(w / 0.7) - math.log(0.7))],
    "error": [
        ({"scale": 0.7, "tail": 3.0}, stats.gennorm(2 / 3, scale=0.7 * 2**1.5).logpdf),
        ({"loc": 0.2, "scale": 0.7, "tail": 0.5}, stats.gennorm(4, loc=0.2, scale=0.7 * 2**0.25).logpdf),
        ({"loc": 0.2, "tail": 2.0}, stats.gennorm(1, loc=0.2, scale=2).logpdf),
    ],
    "normal_mixture": [
        (
            {"mix": 0.3, "std1": 1.5, "std2": 0.1},
            lambda w: np.log(0.3 * stats.norm(0, 1.5).pdf(w) + 0.7 * stats.norm(0, 0.1).pdf(w)),
        )
    ],
    "exponential": [({"rate": 2.0}, stats.expon(scale=0.5).logpdf)],
    "gamma": [
        ({"concentration": 2.5, "rate": 3.0}, stats.gamma(2.5, scale=1 / 3).logpdf),
        ({"concentration": 0.4}, stats.gamma(0.4).logpdf),
    ],
    "erlang": [({"concentration": 3, "rate": 2.0}, stats.erlang(3, scale=0.5).logpdf)],
    "chi_squared": [({"df": 3.0}, stats.chi2(3).logpdf)],
    "inverse_gamma": [({"concentration": 2.5, "rate": 3.0}, stats.invgamma(2.5, scale=3).logpdf)],
    "inverse_gaussian": [({"loc": 1.5, "concentration": 2.0}, stats.invgauss(0.75, scale=2).logpdf)],
    "std_wald": [({}, stats.invgauss(1).logpdf)],
    "rayleigh": [({"scale": 0.7}, stats.rayleigh(scale=0.7).logpdf)],
    "weibull": [({"scale": 0.7, "concentration": 2.5}, stats.weibull_min(2.5, scale=0.7).logpdf)],
    "log_normal": [({"loc": 0.3, "scale": 0.5}, stats.lognorm(0.5, scale=math.exp(0.3)).logpdf)],
    "pareto": [({"scale": 0.7, "alpha": 2.5}, stats.pareto(2.5, scale=0.7).logpdf)],
    "log_uniform": [({}, lambda w: -np.log(np.abs(w)))],
}
JOINT = {
    "radial": {"loc": 0.2, "scale": 0.7},
    "dirichlet": {"concentration": [0.5, 2.0, 3.0]},
    "direction": {"flat": 1.0},
    "group_laplace": {"scale": 2.0},
}
BY_TENSOR: dict[str, dict[str, Any]] = {
    "fan_in": {"gain": 2.0, "bias_std": 0.3},
    "weight_norm": {"scale": 2.0, "bias_std": 0.3, "flat": 1.0},
    "per_layer": {"rules": {"bias$": "laplace", "^conv": {"prior": "fan_in", "options": {"gain": 3.0}}}},
}
CASES = [(name, options, law) for name, choices in LAWS.items() for options, law in choices]
OPTIONS = [
    *[(name, options) for name, options, _ in CASES],
    *JOINT.items(),
    *BY_TENSOR.items(),
    *[(name, {}) for name in PRIORS],
]


def horseshoe(w: Any) -> Any:
    x = 0.5 * np.square(w)
    return x + np.log(special.exp1(x)) - 0.5 * math.log(2 * math.pi**3)


def points(p: Prior) -> torch.Tensor:
    """Values inside the support and, where there is an outside, beyond it."""
    inside = torch.logspace(-2, 0.8, 30, dtype=torch.float64)
    if p.lower > -math.inf:
        return torch.cat([p.lower + inside, p.lower - inside])
    return torch.cat([inside, -inside])


def test_every_registered_prior_has_a_case() -> None:
    assert set(LAWS) | set(JOINT) | set(BY_TENSOR) == set(PRIORS)
    assert all(name == kind.name and kind.about for name, kind in PRIORS.items())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("name", "options", "law"), CASES)
def test_the_density_is_that_of_scipy(
    name: str, options: dict[str, Any], law: Any, dtype: torch.dtype, tolerance: float
) -> None:
    p = bf.prior(name, **options)
    value = points(p).to(dtype)
    found = p.log_prob(value)
    assert found.dtype == dtype
    with np.errstate(divide="ignore"):
        expected = law(value.double().numpy())
    np.testing.assert_allclose(found.double(), expected, rtol=tolerance, atol=tolerance)
    if p.lower > -math.inf:
        assert (found[30:] == -math.inf).all()


@pytest.mark.parametrize(("name", "options", "law"), CASES)
def test_gradients_are_right_inside_and_zero_outside_the_support(
    name: str, options: dict[str, Any], law: Any
) -> None:
    p = bf.prior(name, **options)
    value = points(p).requires_grad_()
    (gradient,) = torch.autograd.grad(p.log_prob(value).sum(), value)
    assert gradient.isfinite().all()
    if p.lower > -math.inf:
        assert (gradient[30:] == 0).all()
    inside = value.detach()[5:25].requires_grad_()
    assert torch.autograd.gradcheck(p.log_prob, inside, rtol=1e-4)


@pytest.mark.parametrize(("name", "options", "law"), [case for case in CASES if case[0] != "log_uniform"])
def test_the_total_mass_is_one(name: str, options: dict[str, Any], law: Any) -> None:
    """∫ p(w) dw over lower + e^y, and −e^y for the whole line, by the trapezoidal rule in y."""
    p = bf.prior(name, **options)
    y = torch.linspace(-60, 40, 50_001, dtype=torch.float64)
    start = max(p.lower, 0.0)
    parts = [start + y.exp()] + ([-y.exp()] if p.lower < 0 else [])
    total = sum(float((p.log_prob(w) + y).exp().sum() * (y[1] - y[0])) for w in parts)
    assert total == pytest.approx(1, abs=1e-4 if name == "error" and options.get("loc") else 1e-6)


@pytest.mark.parametrize(("name", "options", "law"), CASES)
def test_terms_add_up_to_the_density(name: str, options: dict[str, Any], law: Any) -> None:
    p = bf.prior(name, **options)
    terms = p.terms()
    if terms is None:
        assert name in ("logistic", "student_t", "horseshoe", "normal_mixture") or options.get("loc")
        return
    value = points(p)[:30] if p.lower > -math.inf else points(p)
    total = terms.constant + sum(c * feature(value) for feature, c in terms.coefficients.items())
    torch.testing.assert_close(total, p.log_prob(value), rtol=1e-9, atol=1e-9)


def test_features_of_some_priors() -> None:
    assert set(bf.prior("gamma").terms().coefficients) == {log(1), power(1)}
    assert set(bf.prior("laplace").terms().coefficients) == {absolute(1)}
    assert set(bf.prior("error", tail=0.5).terms().coefficients) == {power(4)}
    assert set(bf.prior("error", tail=0.5, loc=1.0).terms().coefficients) == {power(k) for k in (1, 2, 3, 4)}
    assert bf.prior("error", tail=2.0, loc=1.0).terms() is None


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_options_are_plain_data_that_make_the_prior_again(name: str, options: dict[str, Any]) -> None:
    p = bf.prior(name, **options)
    data = json.loads(json.dumps(p.options))
    again = bf.prior(name, **data)
    assert again == p and hash(again) == hash(p) and repr(again) == repr(p)
    assert copy.deepcopy(p) == p and pickle.loads(pickle.dumps(p)) == p
    assert p != bf.prior("normal", mean=17.0)


@pytest.mark.parametrize(("name", "options"), [case for case in OPTIONS if case[0] not in BY_TENSOR])
def test_one_density_per_tensor(name: str, options: dict[str, Any]) -> None:
    p = bf.prior(name, **options)
    value = 1.5 + torch.rand(5, 2, 3, dtype=torch.float64)
    if name == "dirichlet":
        value = value / value.sum(-1, keepdim=True)
    found = p.tensor_log_prob(value, 2)
    assert found.shape == (5,)
    torch.testing.assert_close(found[1], p.log_prob(value[1]).sum())
    if p.independent:
        torch.testing.assert_close(p.tensor_log_prob(value[0, 0, 0], 0), p.log_prob(value[0, 0, 0]))


@pytest.mark.parametrize("name", sorted(set(PRIORS) - set(BY_TENSOR) - {"dirichlet"}))
def test_densities_trace_in_one_graph_and_batch(name: str) -> None:
    """torch.compile(fullgraph=True), with other numbers a second time; vmap."""
    torch.compiler.reset()
    choices = [options for options, _ in LAWS.get(name, [(JOINT.get(name, {}), None)])]

    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(p: Prior, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        terms = p.terms()
        if terms is None:
            return p.log_prob(w), p.log_prob(w)
        return p.log_prob(w), terms.constant + sum(c * f(w) for f, c in terms.coefficients.items())

    w = torch.rand(3) + 1
    for p in [bf.prior(name), *(bf.prior(name, **options) for options in choices)]:
        for found in compiled(p, w):
            torch.testing.assert_close(found, p.log_prob(w), atol=1e-5, rtol=1e-5)
        each = torch.func.vmap(p.log_prob)(w.expand(2, 3))
        torch.testing.assert_close(each, torch.stack([p.log_prob(w)] * 2))


# -- priors of whole tensors ---------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3)])
def test_the_radial_density(shape: tuple[int, ...]) -> None:
    p = bf.prior("radial", loc=0.2, scale=0.7)
    value = torch.randn(7, *shape, dtype=torch.float64)
    z = ((value - 0.2) / 0.7).reshape(7, -1).numpy()
    r, d = np.linalg.norm(z, axis=1), z.shape[1]
    area = math.log(2) + d / 2 * math.log(math.pi) - special.gammaln(d / 2) + (d - 1) * np.log(r)
    expected = stats.halfnorm.logpdf(r) - area - d * math.log(0.7)
    np.testing.assert_allclose(p.tensor_log_prob(value, len(shape)), expected, rtol=1e-12)
    assert not p.independent and p.terms() is None


def test_the_dirichlet_density() -> None:
    p = bf.prior("dirichlet", concentration=[0.5, 2.0, 3.0])
    value = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]], dtype=torch.float64)
    expected = torch.distributions.Dirichlet(torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64)).log_prob(
        value
    )
    torch.testing.assert_close(p.log_prob(value), expected)
    one = torch.distributions.Dirichlet(torch.full((3,), 2.0, dtype=torch.float64)).log_prob(value)
    torch.testing.assert_close(bf.prior("dirichlet", concentration=2.0).log_prob(value), one)
    assert p.log_prob(torch.tensor([0.2, 0.3, 0.7])) == -math.inf
    assert p.log_prob(torch.tensor([-0.2, 0.7, 0.5])) == -math.inf
    assert "simplex" in p.refusal and bf.prior("normal").refusal == ""
    with pytest.raises(ValueError, match=r"concentration has 3 entries, the last dimension of the value 2"):
        p.log_prob(torch.tensor([0.5, 0.5]))


# -- priors by tensor ----------------------------------------------------------------------------------------
def test_other_priors_are_the_same_for_every_tensor() -> None:
    p = bf.prior("laplace")
    assert p.at("conv.weight", torch.zeros(3)) is p


@pytest.mark.parametrize(("shape", "std"), [((4, 25), 2 / 5), ((8, 4, 3, 3), 2 / 6), ((4,), 0.3), ((), 0.3)])
def test_fan_in_takes_the_width_from_the_shape(shape: tuple[int, ...], std: float) -> None:
    p = bf.prior("fan_in", gain=2.0, bias_std=0.3).at("weight", torch.zeros(shape))
    assert p == bf.prior("normal", std=std)


def test_per_layer_takes_the_first_rule_that_matches() -> None:
    rules = {"bias$": "laplace", "^conv": bf.prior("fan_in", gain=3.0), "conv1": "student_t"}
    p = bf.prior("per_layer", rules=rules, default=bf.prior("normal", std=0.5))
    like = torch.zeros(2, 9)
    assert p.at("conv1.bias", torch.zeros(2)) == bf.prior("laplace")
    assert p.at("conv1.weight", like) == bf.prior("normal", std=1.0)
    assert p.at("block.conv1.weight", like) == bf.prior("student_t")
    assert p.at("head.weight", like) == bf.prior("normal", std=0.5)
    assert bf.prior("per_layer").at("head.weight", like) == bf.prior("normal")


@pytest.mark.parametrize("name", BY_TENSOR)
def test_priors_by_tensor_have_no_density_of_their_own(name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"the {name} prior depends on the tensor.*use prior.at\(name, like\)"
    ):
        bf.prior(name).log_prob(torch.zeros(2))


def test_rules_are_checked() -> None:
    with pytest.raises(ValueError, match=r"rules: '\(' is no regular expression"):
        bf.prior("per_layer", rules={"(": "normal"})
    with pytest.raises(TypeError, match=r"prior 3 must be a name, bf.prior\(...\), or"):
        bf.prior("per_layer", rules={"bias": 3})
    with pytest.raises(ValueError, match=r"prior='gama' does not exist.*Did you mean 'gamma'"):
        bf.prior("per_layer", default="gama")


# -- bad options ---------------------------------------------------------------------------------------------
POSITIVE = {
    "std",
    "scale",
    "df",
    "rate",
    "concentration",
    "alpha",
    "tail",
    "std1",
    "std2",
    "gain",
    "bias_std",
}


@pytest.mark.parametrize("name", sorted(set(PRIORS) - {"per_layer"}))
def test_numbers_are_checked(name: str) -> None:
    for option in bf.prior(name).options:
        wrong = (0.0, -1.0, math.nan, math.inf) if option in POSITIVE else (math.nan, math.inf)
        for value in wrong:
            with pytest.raises(ValueError, match=rf"prior {option}=.* must be .*{option}=1.0"):
                bf.prior(name, **{option: value})
        for bad in ("3", None):
            with pytest.raises(TypeError, match=rf"prior {option}=.* must be a number"):
                bf.prior(name, **{option: bad})


def test_erlang_needs_a_whole_number_and_a_mixture_a_share() -> None:
    with pytest.raises(ValueError, match=r"concentration=2.5 must be a whole number: .* use the gamma prior"):
        bf.prior("erlang", concentration=2.5)
    for mix in (0.0, 1.0, 1.5):
        with pytest.raises(ValueError, match=r"mix=.* must lie between 0 and 1"):
            bf.prior("normal_mixture", mix=mix)


@pytest.mark.parametrize("name", PRIORS)
def test_unknown_options_are_refused_with_the_choices(name: str) -> None:
    with pytest.raises(
        TypeError, match=rf"colour='red': the {name} prior has no such option; (choose from|it has)"
    ):
        bf.prior(name, colour="red")
    with pytest.raises(AttributeError, match=rf"the {name} prior has no attribute 'colour'"):
        bf.prior(name).colour  # noqa: B018


@pytest.mark.parametrize("z", [0.0, 0.7, -3.0, 30.0])
def test_the_logistic_prior_is_smooth(z: float) -> None:
    """(log p)′ = −tanh(z/2)/scale and its next two derivatives, also at z = 0, which has no kink."""
    scale, t = 0.5, math.tanh(z / 2)
    value = torch.tensor(0.3 + scale * z, dtype=torch.float64, requires_grad=True)
    derivative = bf.prior("logistic", loc=0.3, scale=scale).log_prob(value)
    for k, exact in enumerate([-t, -(1 - t**2) / 2, t * (1 - t**2) / 2], start=1):
        (derivative,) = torch.autograd.grad(derivative, value, create_graph=True)
        assert derivative.item() == pytest.approx(exact / scale**k, rel=1e-9, abs=1e-12)
