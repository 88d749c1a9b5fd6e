"""Preconditioned stochastic-gradient Langevin dynamics."""

import math
from typing import Annotated, Any

import torch
from torch import Tensor

from bayesify.checks import Positive, Range
from bayesify.samplers.base import SGD_RATE, Group, Sampler, States, base_lr

STEP = 0.01  # h P λ of a full batch at curvature 1 per example: the variance is 5 % too large


class PSGLD(Sampler):
    """SGLD whose steps are scaled by the recent size of each coordinate's gradient, as in RMSprop.

        s ← a s + (1 − a) ḡ²            ḡ the mean gradient per example, a = decay
        P = 1 / (ε + √ŝ)                ŝ = s / (1 − aᵗ)
        θ ← θ − h P G + √(2 h P T) η

    The drift Γ = ∂P/∂θ is left out, as by its authors. P follows the gradient, which is large where θ is far out, so
    the variance comes out too large; with k = h P λ at curvature λ and batches of b out of N examples it is

        1/λ · (1 + b/N / (1 + 2k / (1 − a)) + k N / 2b)

    (first order; the last term is that of SGLD, for gradient noise of a model that is right). A long memory, a near
    1, takes the middle term away: with a = 0 it doubles the variance of a full batch, however small the step.

    decay: a, of the mean of squares, in [0, 1)
    eps:   ε, above 0

    As SGLD the order "OBAB" of `splitting`, with mass 1 / P.

    Reference: Li et al., "Preconditioned Stochastic Gradient Langevin Dynamics", AAAI 2016.
    """

    states = ("square",)

    def __init__(
        self,
        params: Any,
        lr: float,
        num_data: int,
        decay: Annotated[float, Range(least=0, below=1)] = 0.999,
        eps: Positive = 1e-5,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(params, num_data, seed, lr=lr, decay=decay, eps=eps, temperature=temperature)

    @classmethod
    def default_lr(cls, num_data: int, num_members: int = 1) -> float:
        """0.01 / (num_members · num_data^1.5): P is of the gradient of the mean over members."""
        return STEP / (num_members * num_data**1.5)

    @classmethod
    def preconditioner(cls, curvature: float, batch: int) -> float:
        """1 / √(the mean square of a gradient at the mode), λ̄ / b there."""
        return math.sqrt(batch / curvature)

    def fill(self, group: Group) -> None:
        """The step at which the group came."""
        group.setdefault("first", self.steps)  # of a group that came later, t counts from there

    def unit(self, p: Tensor, group: Group) -> Tensor | float:
        """h P; a step of SGLD while a warm start goes on: the gradients on the way down say nothing of those later."""
        if self.warming():
            return self.num_members * SGD_RATE / self.num_data
        seen = max(self.steps - group["first"], 1)
        return base_lr(group) / (
            group["eps"] + (self.state[p]["square"] / (1 - group["decay"] ** seen)).sqrt_()
        )

    def warming(self) -> bool:
        """Are the masses of a warm start still to come?"""
        return self.warm is not None and not self.warm.weighed(self.steps)

    def weigh(self, p: Tensor, group: Group, square: Tensor) -> None:
        """s is as if it had always seen these gradients."""
        seen = max(self.steps - group["first"], 1)
        self.state[p]["square"].copy_(square / self.num_data**2 * (1 - group["decay"] ** seen))

    def update(self, states: States, group: Group, gradient: Tensor, noise: Tensor | None) -> Tensor:
        """s, P and θ, in this order."""
        h, temperature, decay = group["lr"], group["temperature"], group["decay"]
        square, t = states["square"], self.steps + 1 - group.get("first", 0)
        square.mul_(decay).add_((gradient / self.num_data).square_(), alpha=1 - decay)
        scale = 1 / (group["eps"] + (square / (1 - decay**t)).sqrt_())
        if self.warming():
            h, scale = self.unit(square, group), torch.ones_like(scale)
        if "mass" in states:
            scale = scale / states["mass"]
        move = -h * scale * gradient
        return move if noise is None else move + (2 * h * temperature * scale).sqrt_() * noise
