"""Priors of independent positive numbers: the form w = scale · ξ with ξ > 0, and others."""

import math

from torch import Tensor

from bayesify import laws
from bayesify.laws import Terms
from bayesify.laws.base import where_inside
from bayesify.laws.features import log, power
from bayesify.priors.base import Prior, number, positive, whole
from bayesify.priors.real import LocationScale


class Positive(LocationScale):
    """The density of scale ξ, ξ > 0 from a law, for a fixed scale; entries independent.

    rate:          1 / scale, above 0
    concentration: the shape, above 0
    """

    lower = 0.0

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = positive("scale", scale)

    @property
    def place(self) -> tuple[float, float]:
        """0 and scale."""
        return 0.0, self.scale


class Exponential(Positive):
    """p(w) = rate exp(−rate w), w ≥ 0, entries independent."""

    name = "exponential"
    law = laws.Exponential()

    def __init__(self, rate: float = 1.0) -> None:
        self.rate = positive("rate", rate)
        self.scale = 1 / self.rate


class Gamma(Positive):
    """p(w) = rate^k w^{k−1} exp(−rate w)/Γ(k), w > 0, k the concentration; entries independent."""

    name = "gamma"

    def __init__(self, concentration: float = 1.0, rate: float = 1.0) -> None:
        self.concentration = positive("concentration", concentration)
        self.rate = positive("rate", rate)
        self.scale = 1 / self.rate
        self.law = laws.Gamma(self.concentration)


class Erlang(Gamma):
    """The gamma prior with a whole concentration: the law of a sum of that many exponential numbers.

    concentration: how many, a whole number
    """

    name = "erlang"

    def __init__(self, concentration: float = 2.0, rate: float = 1.0) -> None:
        super().__init__(whole("concentration", concentration), rate)


class ChiSquared(Positive):
    """χ² with df degrees of freedom: Gamma(df/2, ½), w > 0, entries independent.

    df: degrees of freedom, above 0
    """

    name = "chi_squared"
    scale = 2.0

    def __init__(self, df: float = 1.0) -> None:
        self.df = positive("df", df)
        self.law = laws.Gamma(self.df / 2)


class InverseGamma(Positive):
    """p(w) = rate^k w^{−k−1} exp(−rate/w)/Γ(k), w > 0, k the concentration; entries independent.

    rate: of 1/w, above 0
    """

    name = "inverse_gamma"

    def __init__(self, concentration: float = 1.0, rate: float = 1.0) -> None:
        self.concentration = positive("concentration", concentration)
        self.rate = self.scale = positive("rate", rate)
        self.law = laws.InverseGamma(self.concentration)


class InverseGaussian(Positive):
    """p(w) = √(λ/(2πw³)) exp(−λ(w − μ)²/(2μ²w)), w > 0, μ = loc (the mean), λ = concentration; independent.

    loc: the mean, above 0
    """

    name = "inverse_gaussian"

    def __init__(self, loc: float = 1.0, concentration: float = 1.0) -> None:
        self.loc = self.scale = positive("loc", loc)
        self.concentration = positive("concentration", concentration)
        self.law = laws.InverseGaussian(self.concentration / self.loc)


class StdWald(Positive):
    """The inverse Gaussian of mean 1 and shape 1, w > 0, entries independent."""

    name = "std_wald"
    law = laws.InverseGaussian()

    def __init__(self) -> None:
        super().__init__()


class Rayleigh(Positive):
    """p(w) = w exp(−w²/(2s²))/s², w > 0, s the scale; entries independent."""

    name = "rayleigh"
    law = laws.Rayleigh()


class Weibull(Positive):
    """p(w) = (k/s)(w/s)^{k−1} exp(−(w/s)^k), w > 0, k the concentration, s the scale; entries independent."""

    name = "weibull"
    constants = ("concentration",)

    def __init__(self, scale: float = 1.0, concentration: float = 1.0) -> None:
        super().__init__(scale)
        self.concentration = positive("concentration", concentration)

    @property
    def law(self) -> laws.Weibull:  # type: ignore[override]
        """Made when asked for: the concentration is an exponent, a constant of compiled code."""
        return laws.Weibull(self.concentration)


class LogNormal(Prior):
    """log w ~ N(loc, scale²), w > 0, entries independent.

    loc:   mean of log w
    scale: std of log w
    """

    name = "log_normal"
    lower = 0.0
    law = laws.Normal()

    def __init__(self, loc: float = 0.0, scale: float = 1.0) -> None:
        self.loc = number("loc", loc)
        self.scale = positive("scale", scale)

    def log_prob(self, value: Tensor) -> Tensor:
        """log N(log w; loc, scale²) − log w."""

        def density(w: Tensor) -> Tensor:
            log_w = w.log()
            return self.law.log_prob((log_w - self.loc) / self.scale) - math.log(self.scale) - log_w

        return where_inside(value, value <= 0, density)

    def terms(self) -> Terms:
        """−log²w/(2s²) + (m/s² − 1) log w − m²/(2s²) − log s − ½ log 2π."""
        terms = self.law.terms().moved(self.loc, self.scale)
        assert terms is not None
        slope, curvature = (terms.coefficients[power(k)] for k in (1, 2))
        return Terms(terms.constant, {log(1): slope - 1, log(2): curvature})


class Pareto(Prior):
    """p(w) = a s^a/w^{a+1}, w ≥ s, a = alpha, s = scale; entries independent.

    scale: the smallest weight, above 0
    alpha: power of the tail, above 0
    """

    name = "pareto"

    def __init__(self, scale: float = 1.0, alpha: float = 1.0) -> None:
        self.scale = positive("scale", scale)
        self.alpha = positive("alpha", alpha)
        self.lower = self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        """log a + a log s − (a + 1) log w; −inf below s."""
        return where_inside(value, value < self.scale, self.terms().__call__, self.scale)

    def terms(self) -> Terms:
        """log a + a log s − (a + 1) log w."""
        return Terms(math.log(self.alpha) + self.alpha * math.log(self.scale), {log(1): -self.alpha - 1})
