"""The radial family: one draw couples the whole tensor."""

import math

from torch import Generator, Tensor
from torch.linalg import vector_norm

from bayesify.families.base import Start
from bayesify.families.location_scale import LocationScale, starting_log_scale
from bayesify.families.noise import Shape, standard_normal, symmetric_expectation
from bayesify.families.normal import LOG_MEAN, LOG_VAR, normal_moment
from bayesify.laws.features import Feature
from bayesify.laws.special import EULER, digamma, gamma_ratio, trigamma


class Radial(LocationScale):
    """w = loc + scale ξ, ξ = ρ z/‖z‖, ρ = |N(0, 1)|, z standard normal of the whole tensor (D entries).

    The length of ξ is that of one normal number, whatever D; so E ξ_j² = 1/D. Entries are uncorrelated but dependent:
    `log_prob` and `noise_log_prob` have one value per draw of the tensor, and there is no local pass.
    """

    name = "radial"
    about = (
        "w = loc + scale ρ z/‖z‖, ρ = |N(0, 1)|, z normal of the whole tensor; one draw couples all entries"
    )
    independent = False

    @classmethod
    def init(cls, like: Tensor, init_std: float = 0.05) -> Start:  # type: ignore[override]
        """Starting std of every entry = `init_std` × root mean square, so scale is √D times that."""
        return Start({"log_scale": starting_log_scale(like, init_std, 1 / math.sqrt(like.numel()))})

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        direction = standard_normal((*sample_shape, *self.shape), self.loc, generator)
        length = standard_normal(sample_shape, self.loc, generator).abs()
        norm = whole_norm(direction, len(self.shape)).clamp(min=1e-30)
        return direction * (length / norm).reshape(sample_shape + (1,) * len(self.shape))

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        return radial_log_prob(noise, tuple(self.shape))

    def noise_neg_entropy(self) -> float:
        """½ log(2/π) − ½ − log(2π^{D/2}/Γ(D/2)) + (D − 1)(γ + log 2)/2 (FORMULAS 2.1)."""
        size = self.shape.numel()
        return log_norm(size) - 0.5 + (size - 1) * 0.5 * (EULER + math.log(2))

    def expectation(self, feature: Feature) -> float | None:
        """ξ_j = ρ u_j with u_j² ~ Beta(½, (D − 1)/2), independent: E |u_j|^p = Γ(D/2) Γ((p+1)/2)/(√π Γ((D+p)/2))."""
        half = self.shape.numel() / 2

        def log_moments() -> tuple[float, float]:
            mean = LOG_MEAN + 0.5 * (digamma(0.5) - digamma(half))
            return mean, LOG_VAR + 0.25 * (trigamma(0.5) - trigamma(half))

        return symmetric_expectation(feature, lambda p: radial_moment(p, half), log_moments)

    def log_prob(self, value: Tensor) -> Tensor:
        """log q₀((w − loc)/scale) − Σ log scale, one value per draw."""
        return self.noise_log_prob((value - self.loc) / self.scale) - self.log_scale.sum()

    def neg_entropy(self) -> Tensor:
        """E log q = E log q₀(ξ) − Σ log scale (FORMULAS 2.1)."""
        return self.noise_neg_entropy() - self.log_scale.sum()


def radial_log_prob(noise: Tensor, shape: Shape) -> Tensor:
    """½ log(2/π) − r²/2 − log(2π^{D/2}/Γ(D/2)) − (D − 1) log r, r = ‖ξ‖: (*draws, *shape) → (*draws)."""
    size = math.prod(shape)
    r = whole_norm(noise, len(shape))
    density = log_norm(size) - 0.5 * r.square()
    return density - (size - 1) * r.log() if size > 1 else density


def log_norm(size: int) -> float:
    """½ log(2/π) − log(2π^{D/2}/Γ(D/2)): a half-normal radius over the area of the sphere."""
    area = math.log(2) + 0.5 * size * math.log(math.pi) - math.lgamma(0.5 * size)
    return 0.5 * math.log(2 / math.pi) - area


def radial_moment(p: float, half: float) -> float:
    """E |ξ_j|^p = E ρ^p E |u_j|^p."""
    length = normal_moment(p)
    if math.isinf(length):
        return math.inf
    return length * math.gamma((p + 1) / 2) / math.sqrt(math.pi) / gamma_ratio(half, p / 2)


def whole_norm(noise: Tensor, ndim: int) -> Tensor:
    """‖ξ‖ over the last `ndim` dimensions: (*draws, *shape) → (*draws)."""
    if ndim == 0:
        return noise.abs()
    return vector_norm(noise, dim=tuple(range(-ndim, 0)))
