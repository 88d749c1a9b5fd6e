"""The parameterization tuple P = (G, n, t) of a function of random weights (paper 1, Definition 1).

    g(w) = constant + Σ_i a_i n_i(θ) t_i(ξ),        w = W(θ, ξ)

The features n_i(θ) need gradients, the statistics t_i(ξ) do not. So the mean of g over M draws is the same sum with
t_i replaced by its mean over the draws: a graph of d_P nodes for every M. G is the sum.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bayesify.families.base import Family, RandomTensor
from bayesify.families.location_scale import LocationScale
from bayesify.families.log_location_scale import LogLocationScale
from bayesify.families.scale import Scale
from bayesify.laws import Terms
from bayesify.laws.features import Feature, log, power
from bayesify.priors.base import Prior


class Monomial(NamedTuple):
    """n(θ) = loc^a · scale^b · (log scale)^c, times the sign of the weight where `signed`."""

    loc: int = 0
    scale: float = 0
    log_scale: int = 0
    signed: bool = False

    def __call__(self, q: Family) -> Tensor | None:
        """The tensor n(θ), with gradients; None for n = 1."""
        factors: list[Tensor] = []
        if self.loc:
            factors.append(_power(q.loc, self.loc))  # type: ignore[attr-defined]
        if self.scale:
            factors.append(_power(q.scale, self.scale))  # type: ignore[attr-defined]
        if self.log_scale:
            factors.append(_power(_log_scale(q), self.log_scale))
        if self.signed and q.sign is not None:
            factors.append(q.sign)
        return math.prod(factors[1:], start=factors[0]) if factors else None


class Term(NamedTuple):
    """a · n(θ) · t(ξ); `statistic` is None for t = 1."""

    coefficient: float
    feature: Monomial
    statistic: Feature | None = None


class Parameterization(NamedTuple):
    """The tuple P of one entry of a tensor. `combine` is G; `statistics` lists the t that `combine` asks for."""

    constant: float
    terms: tuple[Term, ...]
    num_parameters: int  # S, the coordinates of θ that are no constants of the family

    @property
    def d_P(self) -> int:
        """The dimension of n ∘ t: nodes that need gradients, for any number of draws."""
        return len({(term.feature, term.statistic) for term in self.terms if term.feature != ONE})

    def direct_d_P(self, num_draws: int) -> int:
        """The same when every draw keeps its own nodes (paper 1, Fig. 4a): 9 for w² of a normal at M = 3."""
        return self.d_P * num_draws

    @property
    def statistics(self) -> list[Feature]:
        """The t(ξ) that meet a gradient."""
        found = (t.statistic for t in self.terms if t.statistic is not None and t.feature != ONE)
        return list(dict.fromkeys(found))

    @property
    def free_statistics(self) -> list[Feature]:
        """The t(ξ) that meet no gradient: their expectation may stand for them in every estimator."""
        found = (t.statistic for t in self.terms if t.statistic is not None and t.feature == ONE)
        return [t for t in dict.fromkeys(found) if t not in self.statistics]

    def combine(self, q: Family, means: Mapping[Feature, Tensor | float]) -> Tensor:
        """G(n ∘ t) summed over the tensor: `means` holds the mean of each statistic, per entry or one number."""
        count = q.shape.numel()
        total: Tensor | float = self.constant * count
        by_statistic: dict[Feature | None, list[Term]] = {}
        for term in self.terms:
            by_statistic.setdefault(term.statistic, []).append(term)
        for statistic, terms in by_statistic.items():
            mean = 1.0 if statistic is None else means[statistic]
            number = 0.0
            tensor: Tensor | None = None
            for term in terms:
                n = term.feature(q)
                if n is None:
                    number += term.coefficient
                else:
                    tensor = n * term.coefficient if tensor is None else tensor + n * term.coefficient
            if tensor is not None:
                total = total + (tensor if statistic is None else tensor * mean).expand(q.shape).sum()
            if number:
                total = total + number * (mean.mean() if isinstance(mean, Tensor) else mean) * count
        return total if isinstance(total, Tensor) else coordinates(q)[0].new_tensor(total)

    def minus(self, other: "Parameterization") -> "Parameterization":
        """The tuple of the difference of two functions of the same weights."""
        negative = tuple(term._replace(coefficient=-term.coefficient) for term in other.terms)
        terms = _merge([*self.terms, *negative])
        return Parameterization(self.constant - other.constant, terms, self.num_parameters)


ONE = Monomial()


def coordinates(q: Family) -> list[Tensor]:
    """θ as the form of the family has it: (loc, scale), or (scale) of a scale family."""
    if isinstance(q, LocationScale | LogLocationScale):
        return [q.loc, q.scale]
    assert isinstance(q, Scale), f"the {q.name} family has none of the three forms"
    return [q.scale]


def num_parameters(q: Family) -> int:
    """S: the coordinates of θ, without those that are constants of the family."""
    return len(coordinates(q)) - len(q.constants)


def distribution_of(q: Family | RandomTensor) -> Family:
    """The family itself, also of a random tensor that holds one (`bf.family(...)`)."""
    return q.distribution() if isinstance(q, RandomTensor) else q


def of_terms(q: Family, terms: Terms, magnitude: bool = False) -> Parameterization | None:
    """The tuple of g(w) = constant + Σ coefficient · feature(w), or of g(|w|) with `magnitude`.

    None where one of the features has no finite expansion in the family's form.
    """
    found: list[Term] = []
    for feature, coefficient in terms.coefficients.items():
        expanded = expand(q, feature, magnitude)
        if expanded is None:
            return None
        found += [term._replace(coefficient=coefficient * term.coefficient) for term in expanded]
    return Parameterization(terms.constant, _merge(found), num_parameters(q))


def prior_of(q: Family, p: Prior) -> Prior:
    """The prior of this one tensor, for priors that depend on its shape."""
    return p.at("", torch.empty(q.shape, device="meta"))


def of_feature(q: Family | RandomTensor, feature: Feature) -> Parameterization | None:
    """The tuple of one feature of w: w^k, |w|^p, log^k |w| (Theorems 1 and 2, Corollaries 1 and 2)."""
    return of_terms(distribution_of(q), Terms(0.0, {feature: 1.0}))


def of_prior(q: Family | RandomTensor, p: Prior) -> Parameterization | None:
    """The tuple of log p(w); priors on the positive half-line see |w|."""
    terms = p.terms() if p.independent else None
    return None if terms is None else of_terms(distribution_of(q), terms, magnitude=p.lower >= 0)


def of_family(q: Family) -> Parameterization:
    """The tuple of log q(w) − log q₀(ξ) = −log |∂W/∂ξ|."""
    terms = [Term(-1.0, Monomial(log_scale=1))]
    if isinstance(q, LogLocationScale):  # w = exp(x), x = loc + scale ξ: −log scale − x
        terms += [Term(-1.0, Monomial(loc=1)), Term(-1.0, Monomial(scale=1), power(1))]
    return Parameterization(0.0, tuple(_without_constants(q, terms)), num_parameters(q))


def of_kl(q: Family | RandomTensor, p: Prior) -> Parameterization | None:
    """The tuple of log q(w) − log p(w), less log q₀(ξ), which has no gradient.

    >>> of_kl(family("normal", like=torch.zeros(3)), prior("normal")).d_P  # μ², μσ ξ, σ² ξ² and log σ
    4
    """
    q = distribution_of(q)
    cross = of_prior(q, prior_of(q, p))
    return None if cross is None else of_family(q).minus(cross)


def expand(q: Family, feature: Feature, magnitude: bool = False) -> list[Term] | None:
    """feature(w) as Σ a n(θ) t(ξ); of |w| instead of w with `magnitude`; None where there is no finite sum."""
    terms: list[Term] | None = None
    if isinstance(q, LocationScale):
        terms = _location_scale(feature, magnitude)
    elif isinstance(q, LogLocationScale):
        terms = _binomial(int(feature.power)) if _is_log_power(feature) else None
    elif isinstance(q, Scale):
        terms = _scale(q, feature, magnitude)
    return None if terms is None else _without_constants(q, terms)


def _without_constants(q: Family, terms: Sequence[Term]) -> list[Term]:
    """Coordinates that are constants of the family moved into the coefficients; what they make zero is left out."""
    if not q.constants:
        return list(terms)
    found = []
    for a, n, t in terms:
        for name, value in q.constants.items():
            a *= value ** getattr(n, name) * (math.log(value) ** n.log_scale if name == "scale" else 1.0)
            n = n._replace(loc=0) if name == "loc" else n._replace(scale=0, log_scale=0)
        if a:
            found.append(Term(a, n, t))
    return found


def _location_scale(feature: Feature, magnitude: bool) -> list[Term] | None:
    """(loc + scale ξ)^k = Σ_j binom(k, j) loc^{k−j} scale^j ξ^j, k = 0, 1, 2, … (Theorem 2)."""
    k = feature.power
    if k != int(k) or k < 0 or feature.kind == "log":
        return None
    if (feature.kind == "abs" or magnitude) and k % 2:
        return None
    return _binomial(int(k))


def _binomial(k: int) -> list[Term]:
    return [Term(math.comb(k, j), Monomial(k - j, j), power(j) if j else None) for j in range(k + 1)]


def _scale(q: Family, feature: Feature, magnitude: bool) -> list[Term] | None:
    """|scale ξ|^p = scale^p |ξ|^p; log^k(scale ξ) = Σ_j binom(k, j) (log scale)^{k−j} log^j ξ (Theorem 1)."""
    p = feature.power
    if feature.kind == "log":
        if not _is_log_power(feature):
            return None
        k = int(p)
        return [Term(math.comb(k, j), Monomial(log_scale=k - j), log(j) if j else None) for j in range(k + 1)]
    plain = feature.kind == "power" and not magnitude
    if plain and p != int(p) and q.support == "real":
        return None
    signed = plain and bool(p % 2)
    statistic = power(p) if plain or q.support != "real" else Feature("abs", p)
    return [Term(1.0, Monomial(scale=p, signed=signed), statistic)]


def _is_log_power(feature: Feature) -> bool:
    return feature.kind == "log" and feature.power == int(feature.power) and feature.power >= 0


def _merge(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Terms with the same n and t added up."""
    merged: dict[tuple[Monomial, Feature | None], float] = {}
    for coefficient, feature, statistic in terms:
        merged[feature, statistic] = merged.get((feature, statistic), 0.0) + coefficient
    return tuple(Term(coefficient, *key) for key, coefficient in merged.items() if coefficient)


def _power(x: Tensor, p: float) -> Tensor:
    if p == 1:
        return x
    return x.square() if p == 2 else x**p


def _log_scale(q: Family) -> Tensor:
    return q.scale.log() if isinstance(q, Scale) else q.log_scale  # type: ignore[attr-defined]
