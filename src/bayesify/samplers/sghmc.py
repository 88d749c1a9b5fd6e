"""Stochastic-gradient Hamiltonian Monte Carlo."""

from typing import ClassVar

from bayesify.samplers.momentum import MomentumSampler


class SGHMC(MomentumSampler):
    """Momentum with friction D and noise D, no thermostat: gradient noise makes it too hot.

    α = D, β = D. With gradient noise of rate B = h Var G the variance grows by 1 + B / (2 m D T).

    Reference: Chen et al., "Stochastic Gradient Hamiltonian Monte Carlo", ICML 2014, with B̂ = 0.
    """

    orders: ClassVar = {"fused": "PA", "strang": "BAOA"}
    states = ("momentum",)
    kernel = "constant"
    share = 0.05  # nothing takes it away
