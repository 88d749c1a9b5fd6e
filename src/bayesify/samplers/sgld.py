"""Stochastic-gradient Langevin dynamics."""

from typing import Any

import torch

from bayesify.samplers.base import Sampler


class SGLD(Sampler):
    """θ ← θ − h ∇U(θ) + √(2 h T) η, with U = −log posterior, h = lr, T = temperature, η ~ N(0, 1).

    Reference: Welling and Teh, "Bayesian Learning via Stochastic Gradient Langevin Dynamics", ICML 2011
    (with their step ε = 2 h).
    """

    def __init__(
        self, params: Any, lr: float, num_data: int, temperature: float = 1.0, seed: int = 0
    ) -> None:
        super().__init__(params, num_data, seed, lr=lr, temperature=temperature)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            h, temperature = group["lr"], group["temperature"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                parameter.add_(parameter.grad, alpha=-h * self.num_data)
                if temperature > 0:
                    parameter.add_(self.noise(parameter), alpha=(2 * h * temperature) ** 0.5)
        return loss
