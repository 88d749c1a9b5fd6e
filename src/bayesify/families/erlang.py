"""The Erlang family."""

from torch import Tensor

from bayesify.families.base import positive
from bayesify.families.gamma_law import GammaLaw
from bayesify.families.scale import ShapedScale


class Erlang(GammaLaw, ShapedScale):
    """|w| = scale ξ, ξ ~ Gamma(k, 1), k = `concentration` a fixed whole number; each weight keeps its sign."""

    name = "erlang"
    about = "|w| = scale ξ, ξ ~ Gamma(concentration, 1), concentration a whole number"

    @classmethod
    def concentration_for(cls, ratio: float) -> float:
        """Var ξ/(E ξ)² = 1/k, k rounded."""
        return float(max(1, round(ratio**-2)))

    @classmethod
    def check_concentration(cls, concentration: float) -> float:
        if positive("concentration", concentration) != int(concentration):
            raise ValueError(
                f"concentration={concentration!r} must be a whole number for the erlang family: "
                "round it, or use the gamma family"
            )
        return float(concentration)

    @property
    def rate(self) -> Tensor:
        return 1 / self.scale
