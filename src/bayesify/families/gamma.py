"""The gamma family."""

from torch import Tensor

from bayesify.families.gamma_law import GammaLaw
from bayesify.families.scale import ShapedScale


class Gamma(GammaLaw, ShapedScale):
    """|w| = scale ξ, ξ ~ Gamma(k, 1), k the fixed `concentration`; each weight keeps its sign."""

    name = "gamma"
    about = "|w| = scale ξ, ξ ~ Gamma(concentration, 1)"

    @classmethod
    def concentration_for(cls, ratio: float) -> float:
        """Var ξ/(E ξ)² = 1/k."""
        return ratio**-2

    @property
    def rate(self) -> Tensor:
        return 1 / self.scale
