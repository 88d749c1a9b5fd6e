"""The parameterization tuple and its size d_P, against the theorems of paper 1."""

import math

import pytest
import torch
from kl_pairs import LIKE, make_family, make_prior

import bayesify as bf
from bayesify.divergences import of_feature, of_kl, of_prior, support
from bayesify.divergences.parameterization import Parameterization, of_terms
from bayesify.families import FAMILIES
from bayesify.laws.features import Feature, absolute, log, power
from bayesify.priors.base import Terms

SCALE = ["exponential", "std_wald", "rayleigh", "weibull", "erlang", "gamma", "inverse_gamma"]
LOCATION_SCALE = ["normal", "laplace", "logistic", "horseshoe", "radial", "error"]


def tuple_of(family: str, feature: Feature) -> Parameterization:
    found = of_feature(make_family(family), feature)
    assert found is not None
    return found


@pytest.mark.parametrize("family", SCALE)
@pytest.mark.parametrize("feature", [power(1), power(2), power(5), log(), power(-1), power(-3), power(1.7)])
def test_theorem_1(family: str, feature: Feature) -> None:
    """w^k, log w and 1/w^k of w = η(θ) T(ξ) have d_P = 1."""
    assert tuple_of(family, feature).d_P == 1


@pytest.mark.parametrize("family", LOCATION_SCALE)
@pytest.mark.parametrize("k", range(1, 8))
def test_theorem_2(family: str, k: int) -> None:
    """(6): w^k has d_P = binom(k + S − 1, S − 1), S = 2."""
    assert tuple_of(family, power(k)).d_P == math.comb(k + 1, 1)


def test_corollary_1() -> None:
    """w′ = f(w), w = θ ξ: for 1/w (inverse gamma of a gamma) and powers, g(f(w)) is again w^k or log w."""
    assert tuple_of("inverse_gamma", power(-1)).statistics == [power(-1)]
    assert tuple_of("zero_mean_error", absolute(1.5)).d_P == 1


@pytest.mark.parametrize("k", range(1, 5))
def test_corollary_1_of_an_exponential(k: int) -> None:
    """w′ = e^w, w = θ ξ (log-gamma, definition (ii)): log^k w′ has the tuple of w^k, for w = θ ξ of one node."""
    found = tuple_of("exp_gamma", log(k))
    assert found.d_P == 1
    assert found.statistics == [power(k)]
    assert found.num_parameters == 1


@pytest.mark.parametrize("k", range(1, 5))
def test_a_constant_scale_is_no_parameter(k: int) -> None:
    """w = loc + ξ (log-gamma, definition (i)): w^k has S = 1 parameter and the nodes loc^{k−j} ξ^j, j < k."""
    found = tuple_of("log_gamma", power(k))
    assert found.d_P == k
    assert found.num_parameters == 1
    assert found.free_statistics == [power(k)]


@pytest.mark.parametrize("k", range(1, 5))
def test_corollary_2(k: int) -> None:
    """w′ = e^w, w = μ + σ ξ: log^k w′ has the tuple of w^k; w′ itself has none."""
    assert tuple_of("log_normal", log(k)).d_P == math.comb(k + 1, 1)
    assert of_feature(make_family("log_normal"), power(k)) is None


@pytest.mark.parametrize("order", range(1, 7))
def test_corollary_3_and_theorem_3(order: int) -> None:
    """(7): a polynomial of degree K has d_P = binom(K + S, S) − 1, S = 2."""
    polynomial = Terms(1.0, {power(k): 1.0 + k for k in range(1, order + 1)})
    found = of_terms(make_family("normal"), polynomial)
    assert found is not None
    assert found.d_P == math.comb(order + 2, 2) - 1


def test_the_direct_graph_of_w_squared() -> None:
    """Definition 1's example (d_P = 9 at M = 3, 3 for any M) and Remark 2 (the naive graph has 2 at M = 1)."""
    found = tuple_of("normal", power(2))
    assert found.d_P == 3
    assert found.direct_d_P(3) == 9
    assert found.num_parameters == 2 < found.d_P
    assert tuple_of("exponential", power(2)).num_parameters == 1


@pytest.mark.parametrize(
    ("family", "prior", "size"),
    [
        ("normal", "normal", 6),  # (7) with K = 2 for w and w², and log σ
        ("gamma", "gamma", 2),  # log θ and θ
        ("gamma", "log_normal", 3),  # log θ, log² θ and log θ · log ξ
        ("log_normal", "log_normal", 6),
        ("exp_gamma", "pareto", 2),  # log θ and θ ξ
        ("log_gamma", "normal", 3),  # loc, loc² and loc ξ; log scale = 0
    ],
)
def test_the_tuple_of_a_whole_kl(family: str, prior: str, size: int) -> None:
    found = of_kl(make_family(family), make_prior(prior))
    assert found is not None
    assert found.d_P == size
    pair = support(family, make_prior(prior))
    assert pair.sizes["repar"] == size
    assert pair.d_P == size  # `auto` is exact here, through the same tuple


def test_a_random_tensor_and_a_prior_of_each_tensor_have_tuples_too() -> None:
    q = bf.family("normal", like=torch.ones(2, 3))
    for found in (of_kl(q, bf.prior("normal")), of_kl(q, bf.prior("fan_in"))):
        assert found is not None
        assert found.d_P == 4  # of a prior with mean 0: μ², μσ ξ, σ² ξ² and log σ
    cross, square = of_prior(q, bf.prior("normal")), of_feature(q, power(2))
    assert cross is not None and square is not None
    assert (cross.d_P, square.d_P) == (3, 3)


@pytest.mark.parametrize(
    ("family", "prior", "status", "size"),
    [
        ("normal", "logistic", "stream", 2),  # any log-density of w = μ + σ ξ
        ("log_normal", "student_t", "stream", 2),
        ("gamma", "logistic", "stream", 1),  # of w = θ ξ
        ("exp_gamma", "logistic", "stream", 1),
        ("normal", "laplace", "exact", 2),  # a closed form of μ and σ
        ("normal", "gamma", "impossible", None),
    ],
)
def test_a_pair_says_the_size_of_the_way_it_is_computed(
    family: str, prior: str, status: str, size: int | None
) -> None:
    pair = support(family, prior)
    assert (pair.status, pair.d_P) == (status, size)
    assert pair.sizes.get("stream", size) == size


@pytest.mark.parametrize(
    ("family", "feature"),
    [
        ("normal", log()),
        ("normal", power(-1)),
        ("normal", absolute(1)),
        ("normal", power(0.5)),
        ("log_normal", power(2)),
    ],
)
def test_there_is_no_tuple_without_a_finite_sum(family: str, feature: Feature) -> None:
    assert of_feature(make_family(family), feature) is None


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("feature", [power(1), power(2), power(3), log(), log(2), absolute(1.5), power(-1)])
def test_a_tuple_equals_its_function(family: str, feature: Feature) -> None:
    """G(n ∘ t) is the mean of the feature over the draws, with its sign."""
    q = make_family(family)
    found = of_feature(q, feature)
    if found is None:
        pytest.skip("no finite sum")
    noise = q.noise((5,), torch.Generator().manual_seed(0))
    means = {t: t(noise).mean(0) for t in [*found.statistics, *found.free_statistics]}
    torch.testing.assert_close(found.combine(q, means), feature(q.transform(noise)).mean(0).sum())


def test_positive_priors_see_the_magnitude_and_others_the_weight() -> None:
    """LIKE holds a negative weight: E w is its own sum, E |w| the sum of magnitudes."""
    q = make_family("exponential")
    on_magnitude = of_terms(q, Terms(0.0, {power(1): 1.0}), magnitude=True)
    on_weight = of_terms(q, Terms(0.0, {power(1): 1.0}))
    assert on_magnitude is not None and on_weight is not None
    mean = {power(1): 1.0}
    assert on_magnitude.combine(q, mean).item() == pytest.approx(LIKE.abs().sum().item(), rel=1e-3)
    assert on_weight.combine(q, mean).item() == pytest.approx(LIKE.sum().item(), rel=1e-3)


def test_statistics_without_a_gradient_are_listed_apart() -> None:
    found = of_prior(make_family("gamma"), make_prior("gamma"))
    assert found is not None
    assert found.statistics == [power(1)]
    assert found.free_statistics == [log()]
