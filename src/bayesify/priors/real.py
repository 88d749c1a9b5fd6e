"""Priors of independent numbers on the whole line: the form w = loc + scale · ξ, and others."""

import cmath
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bayesify import laws
from bayesify.laws import Terms
from bayesify.laws.features import log
from bayesify.priors.base import Prior, number, positive
from bayesify.priors.values import Values, is_data

AT_NET = "net"  # the centre of a prior around the weights of a network
EMPIRICAL = "empirical"  # the width that fits the posterior best


class LocationScale(Prior):
    """The density of loc + scale ξ, ξ from a law, for fixed numbers; entries independent.

    loc:   the centre
    scale: the width, above 0
    """

    law: laws.Law
    loc: float
    scale: float

    def __init__(self, loc: float = 0.0, scale: float = 1.0) -> None:
        self.loc = number("loc", loc)
        self.scale = positive("scale", scale)

    @property
    def place(self) -> tuple[float, float]:
        """Where ξ is moved: loc and scale."""
        return self.loc, self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        """log p₀((w − loc)/scale) − log scale, p₀ the law's density."""
        loc, scale = self.place
        centred = value - loc if loc else value
        return self.law.log_prob(centred / scale) - math.log(scale)

    def terms(self) -> Terms | None:
        """Those of the law, moved; None where they are no features of w for this loc."""
        terms = self.law.terms()
        return None if terms is None else terms.moved(*self.place)

    def singularities(self) -> Sequence[complex] | None:
        """Those of the law, moved."""
        own, (loc, scale) = self.law.singularities, self.place
        return None if own is None else [loc + scale * z for z in own]


class Normal(LocationScale):
    """p(w) = N(w; mean, std²), entries independent.

    mean: the centre: a number; a tensor, one for every entry that it broadcasts to; {name of a weight: number or
          tensor}, as `net.state_dict()` is; "net": every weight that a network has when it becomes Bayesian, e.g. a
          pretrained one's
    std:  the width, above 0: a number, a tensor, or by name likewise; "empirical": of every tensor the one of largest
          evidence, √ mean E_q (w − mean)², for variational posteriors

    By the layer they differ in a `per_layer` prior.
    """

    name = "normal"
    law = laws.Normal()

    def __init__(self, mean: float | str = 0.0, std: float | str = 1.0) -> None:
        self.mean = _placed("mean", mean, AT_NET)
        self.std: Any = _placed("std", std, EMPIRICAL)
        self.relative = not (isinstance(self.mean, float) and isinstance(self.std, float))
        self.loc = self.mean if isinstance(self.mean, float) else 0.0
        self.scale = self.std if isinstance(self.std, float) else 1.0
        self.is_empirical = isinstance(self.std, str)
        self.needs_net = isinstance(self.mean, str | dict) or isinstance(self.std, str | dict)

    def log_prob(self, value: Tensor) -> Tensor:
        """−z²/2 − log std − ½ log 2π, z = (w − mean)/std; around "net" that of the difference."""
        mean, std = _numbers("mean", self.mean, value), _numbers("std", self.std, value)
        if mean is None and std is None:
            return super().log_prob(value)
        std = value.new_tensor(self.scale) if std is None else std
        centred = value - self.loc if mean is None else value - mean
        return self.law.log_prob(centred / std) - std.log()

    def at(self, name: str, like: Tensor) -> "Normal":
        """Of mean and std by name, those of this one."""
        if not isinstance(self.mean, dict) and not isinstance(self.std, dict):
            return self
        return Normal(*(_of(option, each, name) for option, each in (("mean", self.mean), ("std", self.std))))

    @property
    def standard(self) -> "Normal":
        return Normal(self.loc if isinstance(self.std, float) else 0.0, self.scale) if self.relative else self

    def centre(self, name: str, weight: Tensor) -> Tensor | None:
        if self.mean == AT_NET:
            return weight.detach().clone()
        if isinstance(self.mean, Values):
            return self.mean.over("mean", name, weight)
        everywhere = self.loc and not isinstance(self.std, float)
        return torch.full_like(weight, self.loc).detach() if everywhere else None

    def width(self, name: str, weight: Tensor) -> Tensor | None:
        return self.std.over("std", name, weight) if isinstance(self.std, Values) else None

    @property
    def options(self) -> dict[str, Any]:
        """Tensors by their shape and a hash."""
        return {"mean": _data(self.mean), "std": _data(self.std)}


def _placed(option: str, value: Any, word: str) -> Any:
    """A mean or std as a number, `Values`, the word, or those by the names of weights."""
    check = positive if option.startswith("std") else number
    if isinstance(value, str) and value == word:
        return value
    if isinstance(value, Tensor | Values) or is_data(value):
        return Values.of(option, value, positive=check is positive)
    if isinstance(value, Mapping):
        return {name: _placed(f"{option}[{name!r}]", each, word) for name, each in value.items()}
    if isinstance(value, str):
        raise TypeError(f"prior {option}={value!r} must be a number, a tensor, {{name: either}}, or {word!r}")
    return check(option, value)


def _of(option: str, value: Any, name: str) -> Any:
    """That of the weight called `name`."""
    if not isinstance(value, dict):
        return value
    if name not in value:
        raise ValueError(
            f"prior {option} has none for the weight {name!r}, but for {', '.join(list(value)[:5])}: give one, or "
            f"another prior by bf.prior('per_layer', rules={{...}}, default=...)"
        )
    return value[name]


def _numbers(option: str, value: Any, like: Tensor) -> Tensor | None:
    """A tensor as it is; None for numbers; what has no density by itself raises."""
    if isinstance(value, dict) or value == EMPIRICAL:
        raise ValueError(
            f"prior {option}={_data(value)!r} is of the weights of a network: use prior.at(name, like), or model.kl()"
        )
    return value.over(option, "value", like) if isinstance(value, Values) else None


def _data(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _data(each) for name, each in value.items()}
    return value.data() if isinstance(value, Values) else value


class Laplace(LocationScale):
    """p(w) = exp(−|w − loc|/scale)/(2 scale), entries independent."""

    name = "laplace"
    law = laws.Laplace()


class Logistic(LocationScale):
    """p(w) = s(z)(1 − s(z))/scale, z = (w − loc)/scale, s the sigmoid; entries independent."""

    name = "logistic"
    law = laws.Logistic()


class Horseshoe(LocationScale):
    """w = scale λ z, λ half-Cauchy, z standard normal, with λ integrated out; entries independent.

    log p(w) = x + log E₁(x) − ½ log 2π³ − log scale, x = (w/scale)²/2 (FORMULAS 2.2). The density has no bound at 0;
    weights too small for x to be a normal number count as the smallest that is not.
    """

    name = "horseshoe"
    law = laws.Horseshoe()

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__(scale=scale)


class Error(LocationScale):
    """p(w) = exp(−½ |z|^{2/c})/(s 2^{c/2+1} Γ(1 + c/2)), z = (w − loc)/s, c the option `tail`; entries independent.

    c = 1 is the normal prior, c = 2 the Laplace prior of twice the scale. `terms` is a polynomial where 2/c is even,
    |w|^{2/c} where loc = 0, else log p is no sum of features.

    tail: c, above 0; larger ones have heavier tails
    """

    name = "error"
    constants = ("loc", "tail")

    def __init__(self, loc: float = 0.0, scale: float = 1.0, tail: float = 1.0) -> None:
        super().__init__(loc, scale)
        self.tail = positive("tail", tail)

    @property
    def law(self) -> laws.Error:  # type: ignore[override]
        """Made when asked for: the tail is an exponent, a constant of compiled code."""
        return laws.Error(self.tail)


class StudentT(LocationScale):
    """p(w) ∝ (1 + z²/ν)^{−(ν+1)/2}, z = (w − loc)/scale, ν = df; entries independent.

    df: degrees of freedom, above 0; few for heavy tails
    """

    name = "student_t"

    def __init__(self, df: float = 3.0, loc: float = 0.0, scale: float = 1.0) -> None:
        super().__init__(loc, scale)
        self.df = positive("df", df)
        self.law = laws.StudentT(self.df)


class NormalMixture(Prior):
    """p(w) = π N(w; 0, s₁²) + (1 − π) N(w; 0, s₂²), π the option `mix`; entries independent (Blundell et al. 2015).

    mix:  weight of the first normal, between 0 and 1
    std1: of the first normal
    std2: of the second normal
    """

    name = "normal_mixture"

    def __init__(self, mix: float = 0.5, std1: float = 1.0, std2: float = 0.0025) -> None:
        self.mix = number("mix", mix)
        if not 0 < self.mix < 1:
            raise ValueError(
                f"prior mix={mix!r} must lie between 0 and 1; for one component use prior='normal'"
            )
        self.std1 = positive("std1", std1)
        self.std2 = positive("std2", std2)

    def log_prob(self, value: Tensor) -> Tensor:
        """log(π N(w; 0, s₁²) + (1 − π) N(w; 0, s₂²))."""
        first = self._component(value, self.mix, self.std1)
        return torch.logaddexp(first, self._component(value, 1 - self.mix, self.std2))

    @staticmethod
    def _component(value: Tensor, weight: float, std: float) -> Tensor:
        return laws.Normal().log_prob(value / std) + math.log(weight) - math.log(std)

    def singularities(self) -> list[complex]:
        """The zeros of p(w)."""
        difference = 0.5 * (self.std2**-2 - self.std1**-2)
        if difference == 0:
            return []
        ratio = (1 - self.mix) * self.std1 / (self.mix * self.std2)
        zero = cmath.sqrt((math.log(ratio) + 1j * math.pi) / difference)
        return [zero, -zero]


class LogUniform(Prior):
    """log p(w) = log_constant − log |w|, on the whole line, improper; entries independent.

    A KL to it has a free constant. With log_constant = 0 that of a normal with mean μ and variance σ² → ∞·μ² tends to
    −½ log 2πe − ½ (γ + log 2) = −2.0541 per weight; papers subtract that limit, as log_constant = −2.0541 does. At 0
    the density is that of the smallest normal number.

    log_constant: the free constant, in nats per weight
    """

    name = "log_uniform"

    def __init__(self, log_constant: float = 0.0) -> None:
        self.log_constant = number("log_constant", log_constant)

    def log_prob(self, value: Tensor) -> Tensor:
        """log_constant − log |w|."""
        return self.log_constant - value.abs().clamp(min=torch.finfo(value.dtype).tiny).log()

    def terms(self) -> Terms:
        """log_constant − log |w|."""
        return Terms(self.log_constant, {log(1): -1.0})
