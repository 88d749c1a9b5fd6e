"""Stochastic-gradient Langevin dynamics."""

from typing import Any

from torch import Tensor

from bayesify.samplers.base import Group, Sampler, States


class SGLD(Sampler):
    """θ ← θ − h ∇U(θ) + √(2 h T) η, with U = −log posterior, h = lr, T = temperature, η ~ N(0, 1).

    In the operators of `splitting` it is the order "OBAB" with steps of √(2h), m = 1 and a momentum that friction
    takes away wholly; written out, because nothing of that momentum is kept.

    Reference: Welling and Teh, "Bayesian Learning via Stochastic Gradient Langevin Dynamics", ICML 2011
    (with their step ε = 2 h).
    """

    def __init__(
        self, params: Any, lr: float, num_data: int, temperature: float = 1.0, seed: int = 0
    ) -> None:
        super().__init__(params, num_data, seed, lr=lr, temperature=temperature)

    def update(self, states: States, group: Group, gradient: Tensor, noise: Tensor | None) -> Tensor:
        """θ ← θ − h G + √(2 h T) η."""
        h, temperature = group["lr"], group["temperature"]
        if "mass" in states:
            h = h / states["mass"]
        move = gradient.mul_(-h)
        return move if noise is None else move.add_(noise * (2 * h * temperature) ** 0.5)
