"""The Erlang prior."""

from bayesify.priors.base import positive, whole
from bayesify.priors.gamma import GammaDensity


class Erlang(GammaDensity):
    """The gamma prior with a whole concentration: the law of a sum of that many exponential numbers."""

    name = "erlang"
    about = "Gamma(concentration, rate), concentration a whole number, w > 0"

    def __init__(self, concentration: float = 2.0, rate: float = 1.0) -> None:
        self.concentration = whole("concentration", concentration)
        self.rate = positive("rate", rate)
