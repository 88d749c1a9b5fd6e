"""The radial law: one draw couples a whole tensor."""

import math
from dataclasses import dataclass

from torch import Generator, Tensor
from torch.linalg import vector_norm

from bayesify.laws.base import Law
from bayesify.laws.noise import Shape, standard_normal
from bayesify.laws.real import LOG_MEAN, LOG_VAR, Normal
from bayesify.laws.special import EULER, digamma, gamma_ratio, log_sphere_area, trigamma


@dataclass
class Radial(Law):
    """ξ = ρ z/‖z‖, ρ = |N(0, 1)|, z standard normal of a tensor of `shape` (D entries):

    log p(ξ) = ½ log(2/π) − r²/2 − log(2π^{D/2}/Γ(D/2)) − (D − 1) log r, r = ‖ξ‖, one value per draw of the tensor.
    Moments are those of one entry, ξ_j = ρ u_j with u_j² ~ Beta(½, (D − 1)/2), independent.
    """

    shape: Shape

    symmetric = True

    @property
    def size(self) -> int:
        """D."""
        return math.prod(self.shape)

    def log_density(self, x: Tensor) -> Tensor:
        """(*draws, *shape) → (*draws)."""
        r = self.norm(x)
        density = self.log_norm - 0.5 * r.square()
        return density - (self.size - 1) * r.log() if self.size > 1 else density

    @property
    def log_norm(self) -> float:
        """½ log(2/π) − log(2π^{D/2}/Γ(D/2)): a half-normal radius over the area of the sphere."""
        return 0.5 * math.log(2 / math.pi) - log_sphere_area(self.size)

    def norm(self, x: Tensor) -> Tensor:
        """‖ξ‖ over the dimensions of the tensor: (*draws, *shape) → (*draws)."""
        return vector_norm(x, dim=tuple(range(-len(self.shape), 0))) if self.shape else x.abs()

    def sample(self, shape: Shape, like: Tensor, generator: Generator | None) -> Tensor:
        """ρ z/‖z‖."""
        direction = standard_normal(shape, like, generator)
        draws = shape[: len(shape) - len(self.shape)]
        length = standard_normal(draws, like, generator).abs()
        ratio = length / self.norm(direction).clamp(min=1e-30)
        return direction * ratio.reshape(draws + (1,) * len(self.shape))

    def neg_entropy(self) -> float:
        """½ log(2/π) − ½ − log(2π^{D/2}/Γ(D/2)) + (D − 1)(γ + log 2)/2 (FORMULAS 2.1)."""
        return self.log_norm - 0.5 + (self.size - 1) * 0.5 * (EULER + math.log(2))

    def moment(self, p: float) -> float:
        """E |ξ_j|^p = E ρ^p E |u_j|^p, E |u_j|^p = Γ(D/2) Γ((p+1)/2)/(√π Γ((D+p)/2))."""
        if p <= -1:
            return math.inf
        share = math.gamma((p + 1) / 2) / math.sqrt(math.pi) / gamma_ratio(self.size / 2, p / 2)
        return Normal().moment(p) * share

    def log_moments(self) -> tuple[float, float]:
        """Those of ρ, and of u_j = √Beta."""
        half = self.size / 2
        mean = LOG_MEAN + 0.5 * (digamma(0.5) - digamma(half))
        return mean, LOG_VAR + 0.25 * (trigamma(0.5) - trigamma(half))
