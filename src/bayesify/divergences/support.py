"""Which estimators a pair (family, prior) has, decided from supports, moments and tuples; and why it has none."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator

from bayesify.divergences.exact import has_closed_form
from bayesify.divergences.parameterization import expand, num_parameters, of_kl, of_prior, prior_of
from bayesify.divergences.taylor import refusal
from bayesify.execution import compiling
from bayesify.families import FAMILIES, Family, RandomTensor
from bayesify.families.location_scale import LocationScale
from bayesify.families.log_location_scale import LogLocationScale
from bayesify.laws.features import Feature, absolute
from bayesify.names import lookup
from bayesify.priors import PRIORS, Prior, prior

LOWER = {"real": -math.inf, "positive": 0.0, "above_one": 1.0}  # lower ends of the families' supports


class Pair(NamedTuple):
    """What is known of a pair.

    status:     the best way to its KL: "exact", "repar O(1)", "repar O(M)", "stream" or "impossible"
    sampled:    the best Monte-Carlo way, beside an exact one or alone; "none" where there is none
    estimators: all that apply
    reason:     why it is impossible, or has no Monte-Carlo estimator, or when it is infinite
    nearest:    what works instead
    sizes:      d_P, the nodes of each weight that need gradients, whatever the number of draws, by estimator:
                that of the tuple of log q − log p for exact and repar; for stream, and for closed forms beyond the
                tuples, the coordinates of θ themselves
    """

    status: str
    sampled: str
    estimators: tuple[str, ...]
    reason: str = ""
    nearest: str = ""
    sizes: Mapping[str, int] = {}

    @property
    def d_P(self) -> int | None:
        """d_P of the way that `auto` takes, the `status`; None where the pair has no KL."""
        return self.sizes.get(self.status.partition(" ")[0])


def support(family: str | type[Family], prior_: str | Prior, **family_options: Any) -> Pair:
    """What is known of the pair of a family and a prior, each by name or as it is.

    >>> support("normal", "gamma").status
    'impossible'
    >>> support("gamma", "gamma").status
    'exact'
    >>> support("normal", "logistic").d_P  # by stream
    2
    """
    kind = lookup(FAMILIES, family, "family") if isinstance(family, str) else family
    p = prior(prior_) if isinstance(prior_, str) else prior_
    q = example(kind, **family_options)
    pair = describe(q, p)
    return pair if pair.estimators else pair._replace(nearest=_nearest(q, p))


def describe(q: Family, p: Prior) -> Pair:
    """`support` of a small distribution, without what works instead."""
    p = prior_of(q, p)
    names, reason = estimators(q, p)
    if not names:
        return Pair("impossible", "none", (), reason)
    reason = reason or _conditional(q, p)
    sampled = _cost(q, p) if "repar" in names else "stream" if "stream" in names else "none"
    status = "exact" if "exact" in names else sampled
    return Pair(status, sampled, names, reason, sizes=_sizes(q, p, names))


def _sizes(q: Family, p: Prior, names: tuple[str, ...]) -> dict[str, int]:
    """d_P of the estimators whose graph does not grow with the draws."""
    found, coordinates = of_kl(q, p), num_parameters(q)
    tuple_size = coordinates if found is None else found.d_P
    sizes = {"exact": tuple_size, "repar": tuple_size, "stream": coordinates}
    return {name: size for name, size in sizes.items() if name in names}


def estimators(q: Family, p: Prior) -> tuple[tuple[str, ...], str]:
    """The names of all estimators that apply, best first, and the reason where Monte Carlo or all of them do not."""
    p = prior_of(q, p)
    impossible = p.refusal or _outside(q, p) or _infinite(q, p)
    if impossible:
        return (), impossible
    exact = ("exact",) if has_closed_form(q, p) else ()
    rough = _rough(q, p)
    if rough:
        return exact, rough
    repar = ("repar",) if of_prior(q, p) is not None else ()
    taylor = ("taylor",) if refusal(q, p) is None else ()
    return (*exact, *repar, "stream", *taylor, "direct"), ""


def best_estimator(q: Family, p: Prior) -> str:
    """What "auto" means for the pair."""
    if has_closed_form(q, p):
        return "exact"
    return "repar" if of_prior(q, p) is not None else "stream"


def check_pair(q: Family, p: Prior, estimator: str) -> None:
    """Raise where the pair has no KL, or not this estimator of it; the message says why and what works.

    Compiled code checks nothing."""
    if compiling():
        return
    with torch.no_grad():
        names, reason = estimators(q, p)
    if not names:
        nearest = _nearest(q, p)
        raise ValueError(
            f"the {q.name} family and the {p.name} prior do not go together: {reason}; {nearest}"
        )
    if estimator == "auto" or estimator in names:
        return
    if estimator == "taylor":
        raise ValueError(f"estimator='taylor' {refusal(q, p) or reason}")
    why = f": {reason}" if reason else ""
    raise ValueError(
        f"estimator={estimator!r} does not apply to the {q.name} family with the {p.name} prior{why}; "
        f"use {' or '.join(repr(name) for name in names)}"
    )


def check_method(kind: type[Family], p: Prior, estimator: str, family_options: dict[str, Any]) -> None:
    """`check_pair` before there is a network. Priors that depend on the tensor are checked with the network."""
    q, p = example(kind, **family_options), p.standard
    if prior_of(q, p) is p:
        check_pair(q, p, estimator)


def _outside(q: Family, p: Prior) -> str:
    """The reason where q has mass outside the support of p."""
    if p.lower > LOWER[q.support]:
        reached = "negative values" if p.lower == 0 else f"magnitudes below {p.lower:g}"
        return f"the family's weights reach {reached}, where the prior has density 0, so the KL is infinite"
    return ""


def _infinite(q: Family, p: Prior) -> str:
    """The reason where E log p(w) is infinite."""
    for moment in _moments(q, p):
        if q.expectation(moment) == math.inf:
            return f"E {_text(moment)} of the family's noise ξ is infinite, and with it the KL"
    return ""


def _moments(q: Family, p: Prior) -> list[Feature]:
    """Moments of ξ that E log p(w) needs: those of its features, else of the order in which −log p grows."""
    terms = p.terms() if p.independent else None
    if terms is None:
        return [absolute(order) for order in [_growth(p)] if order > 0]
    needed: list[Feature] = []
    for feature in terms.coefficients:
        parts = expand(q, feature, p.lower >= 0)
        if parts is not None:
            needed += [term.statistic for term in parts if term.statistic is not None]
        elif q.support == "real" and feature.kind != "log":
            needed.append(absolute(feature.power))
    return needed


def _growth(p: Prior) -> float:
    """The a for which −log p(w) grows like |w|^a; 0 for logarithmic growth."""
    w = torch.tensor([[1e6, 1e6], [1e12, 1e12]], dtype=torch.float64)
    near, far = (-p.tensor_log_prob(w, 1)).tolist()
    order = math.log(far / near) / math.log(1e6) if near > 0 else 0.0
    return round(order, 1) if order > 0.2 else 0.0


def _rough(q: Family, p: Prior) -> str:
    """The reason where the gradient of log p at draws has no finite mean: log |w| or a power of 1/|w| at w = 0."""
    terms = p.terms() if p.independent else None
    if terms is None or not isinstance(q, LocationScale):
        return ""
    rough = [f for f in terms.coefficients if f.kind == "log" or f.power < 0]
    return f"the gradient of {_text(rough[0], 'w')} at draws has no finite mean" if rough else ""


def check_finite(qs: Sequence[Family], p: Prior) -> None:
    """Raise the pair's reason where E log p(w) is infinite at the present parameters; it looks into tensors."""
    feature = condition(qs[0], p)
    if feature is None:
        return
    with torch.no_grad():
        infinite = [q.noise_log_mgf(feature.power * q.scale).isinf() for q in qs]  # type: ignore[attr-defined]
    count, total = sum(int(part.sum()) for part in infinite), sum(part.numel() for part in infinite)
    if count:
        raise ValueError(
            f"the KL of the {qs[0].name} family and the {p.name} prior is infinite for {count} of {total} weights: it "
            f"is {_conditional(qs[0], p)}; give the family a larger `concentration`, or use a prior without this "
            f"condition, e.g. prior='log_normal'"
        )


def _conditional(q: Family, p: Prior) -> str:
    """The condition under which E log p(w) is finite, where that depends on the family's parameters."""
    feature = condition(q, p)
    if feature is None:
        return ""
    return f"finite only while the scale is small enough for E {_text(feature, 'w')} to be finite"


def condition(q: Family, p: Prior) -> Feature | None:
    """The feature whose expectation is infinite for large scales: the highest power of w in log p(w)."""
    if not isinstance(q, LogLocationScale) or q.noise_log_mgf(torch.tensor(1e3, device="cpu")).isfinite():
        return None
    terms = p.terms() if p.independent else None
    if terms is None:
        features = [absolute(order) for order in [_growth(p)] if order > 0]
    else:
        features = [f for f, coefficient in terms.coefficients.items() if coefficient and f.kind != "log"]
    return max((f for f in features if f.power > 0), key=lambda feature: feature.power, default=None)


def _cost(q: Family, p: Prior) -> str:
    """Whether the statistics of M draws are drawn at once."""
    tuple_ = of_prior(q, p)
    assert tuple_ is not None
    if any(q.expectation(t) is None for t in tuple_.free_statistics):
        return "repar O(M)"
    at_once = not tuple_.statistics or q.sums(tuple_.statistics, 2, Generator()) is not None
    return "repar O(1)" if at_once else "repar O(M)"


def _nearest(q: Family, p: Prior) -> str:
    """What to change: the prior, or the family."""
    priors = [name for name in PRIORS if estimators(q, prior(name))[0]]
    families = [name for name in FAMILIES if estimators(example(FAMILIES[name]), p)[0]]
    same = [name for name in families if name == p.name]
    choices = [f"prior={priors[0]!r} with this family"] if priors else []
    choices += [f"family={(same or families)[0]!r} with this prior"] if families else []
    return "use " + " or ".join(choices) if choices else "no family or prior of this library goes with it"


def example(kind: type[Family], **options: Any) -> Family:
    """A small distribution of the family: what holds for it holds for all its parameters."""
    like = torch.tensor([0.5, -0.3], dtype=torch.float64)
    return RandomTensor(kind, like, own_centre=True, **options).distribution()


def _text(feature: Feature, x: str = "ξ") -> str:
    if feature.kind == "log":
        return f"log |{x}|"
    return f"|{x}|^{feature.power:g}"
