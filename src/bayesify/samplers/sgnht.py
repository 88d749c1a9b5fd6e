"""Stochastic-gradient Nosé-Hoover thermostat."""

from typing import ClassVar

from bayesify.samplers.momentum import MomentumSampler


class SGNHT(MomentumSampler):
    """Momentum with noise D and friction D + ξ; ξ rises until the friction takes the gradient noise away.

    α = D, β = D + ξ, which may be negative. One thermostat for every coordinate.

    Reference: Ding et al., "Bayesian Sampling Using Stochastic Gradient Thermostats", NeurIPS 2014.
    """

    orders: ClassVar = {"fused": "PAD", "strang": "BADODA"}
    states = ("momentum", "thermostat")
    kernel = "constant"
