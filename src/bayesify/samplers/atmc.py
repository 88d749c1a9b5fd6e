"""Adaptive thermostat Monte Carlo (paper 4)."""

from typing import ClassVar

from torch import Tensor

from bayesify.samplers.kinetic import Number
from bayesify.samplers.momentum import MomentumSampler


class ATMC(MomentumSampler):
    """Less noise is injected as ξ finds more of it in the gradients; the friction is never below D.

    α = max(D − ξ, 0), β = α + ξ = max(D, ξ):
    ξ < 0: noise D − ξ, friction D · 0 < ξ < D: noise D − ξ, friction D · ξ > D: no noise, friction ξ.

    One step, h = lr, m = mass, η ~ N(0, 1), w = √(1 + p²/m²c²) (1 without `max_speed` c), b = β / w:
        p ← e^{−bh} p − (1 − e^{−bh})/b G + √(α m T (1 − e^{−2bh})/b) η
        v ← p / (m w),  θ ← θ + h v
        ξ ← ξ + κ h (m v² − T w⁻³)

    >>> sampler = ATMC(net.parameters(), lr=1e-3, num_data=50_000, mass=11.1, max_speed=1.0)

    Reference: Heek and Kalchbrenner, "Bayesian Inference for Large Scale Image Classification", 2019,
    Algorithm 1, with its signs, √m, θ_t, ξ_t and the square put right.
    """

    orders: ClassVar = {"fused": "PAD", "strang": "BADODA"}
    states = ("momentum", "thermostat")
    kernel = "adaptive"

    @staticmethod
    def injected(thermostat: Tensor | None, noise: Number) -> Number:
        """α = max(D − ξ, 0)."""
        assert thermostat is not None
        return (noise - thermostat).clamp_(min=0)
