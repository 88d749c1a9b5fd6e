"""Mass, noise and thermostat rate for a network, or a step size, from the curvature of its loss."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesify.batches import beside
from bayesify.checks import Count, Positive, check_setting, checked
from bayesify.methods import ThermostatMCMC
from bayesify.samplers import SAMPLERS

STABLE = 0.3  # √(λ/m) h above it is read by the thermostat as gradient noise
DECAY = 0.9
TOO_WIDE = 0.05  # of SGLD's variance, by the size of its steps and the noise of its gradients


@dataclass(frozen=True)
class Suggestion:
    """Settings for `bf.ThermostatMCMC` or a sampler, and why. None: the sampler has no such setting, or needs none."""

    lr: float
    mass: float | None
    noise: float | None
    thermostat_rate: float | None
    reasons: tuple[str, ...]
    max_speed: float | None = None

    @property
    def settings(self) -> dict[str, float]:
        """The settings by name, without those that are None."""
        names = ("lr", "mass", "noise", "thermostat_rate", "max_speed")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value:.4g}" for name, value in self.settings.items())
        return "\n".join([settings, *(f"  {reason}" for reason in self.reasons)])


@checked
def suggest(
    model: Any, x: Any, y: Tensor, lr: Positive = 1e-3, iterations: Count = 20, seed: int = 0
) -> Suggestion:
    """Settings for a step of `lr`, from one batch; for a sampler without a mass, as SGLD, the step size itself.

    The largest curvature λ̄ of the mean loss is found by power iteration (two backward passes each). U = num_data ·
    loss has λ = num_data λ̄, and √(λ/m) h ≤ 0.3 gives the smallest mass that is safe.
    `lr` itself is free: h → a h with m → a² m, D → D / a, κ → κ / a² and c → c / a is the same chain, step for step,
    and D and κ are suggested so. What is chosen is h²/m, which sets the size of a step: weights move by √(h²/m) (root
    mean square), the learning rate of the equal SGD is num_data h²/m.
    Curvature grows in the first epochs of training: ask again after a while, or let `tune` run some steps.

    SGLD with k = h λ and batches of b draws a variance that is too large by k/2 (its step) and k/2 · (num_data/b − 1)
    (gradient noise, by a model that is right: the gradients of examples then have variance λ̄). `lr` is what makes this
    5 % for batches as large as that given. With a preconditioner P it is k = h P λ; pSGLD has P = √(b / λ̄).

    >>> print(bf.diagnostics.suggest(model, x, y, lr=1e-3))
    """
    if model.num_data is None:
        raise ValueError("num_data is missing: give bayesify(..., num_data=len(train_set))")
    check_setting("lr", lr, Positive)
    x, y = beside(model, (x, y))
    curvature = _largest_curvature(model, x, y, iterations, seed)
    sampled = isinstance(model.method, ThermostatMCMC)
    if sampled and not model.method.has("mass"):
        return _step_size(model.method.sampler, model.num_data, max(curvature, 1e-12), len(y), lr)
    mass = model.num_data * max(curvature, 1e-12) * lr**2 / STABLE**2
    noise = -math.log(DECAY) / lr
    rate = None if sampled and not model.method.has("thermostat_rate") else 1e-3 / lr**2
    step = lr**2 * model.num_data / mass
    reasons = (
        f"mass: the largest curvature of the mean loss is {curvature:.3g}; √(num_data · {curvature:.3g} / mass) "
        f"· lr = {STABLE} is about as far as the integrator stays true",
        f"a step is then like SGD with learning rate {step:.2g} and momentum {DECAY}; weights move by "
        f"{lr / math.sqrt(mass):.2g} a step (root mean square)",
        *usual_reasons(lr, mass)[: 2 if rate is None else 3],
        f"max_speed={3 / math.sqrt(mass):.3g} would bound a step at three times its usual size",
    )
    return Suggestion(lr, mass, noise, rate, reasons)


def _step_size(sampler: str, num_data: int, curvature: float, batch: int, lr: float) -> Suggestion:
    batch = min(batch, num_data)
    scale = SAMPLERS[sampler].preconditioner(curvature, batch)  # P
    each = scale * num_data * curvature  # k of lr = 1
    found = 2 * TOO_WIDE * batch / num_data / each
    size = "lr · num_data · curvature" + f" · P, where P = {scale:.3g}," * (scale != 1)
    k, wide = lr * each, lr * each / 2 * num_data / batch
    reasons = (
        f"lr: {sampler} has no mass, its step alone sets the width of the draws. The largest curvature of the "
        f"mean loss is {curvature:.3g}; k = {size} = {found * each:.3g} makes the variance about "
        f"{TOO_WIDE:.0%} too large there, k/2 · num_data / batch, with batches of {batch}; less elsewhere",
        f"the chain forgets in about 1/k = {1 / (found * each):.3g} steps there, in more elsewhere",
        f"the lr given, {lr:g}, has k = {k:.3g}: " + ("far too large" if k > 2 else f"{wide:.0%} too large"),
        "larger batches allow larger steps; sampler='atmc' has a thermostat that takes gradient noise away",
    )
    return Suggestion(found, None, None, None, reasons)


def usual_reasons(lr: float, mass: float) -> tuple[str, ...]:
    """Why no step size is chosen, and the other two settings."""
    return (
        f"lr: as given; only lr² / mass = {lr**2 / mass:.3g} matters, and the mass chooses that. Ten times the lr "
        f"with a hundred times the mass, noise and max_speed / 10 and thermostat_rate / 100 is the same chain",
        f"noise: a full step keeps {DECAY} of the momentum",
        "thermostat_rate: the thermostat follows the gradient noise within some hundred steps",
    )


def _largest_curvature(model: Any, x: Any, y: Tensor, iterations: int, seed: int) -> float:
    parameters = [p for p in model.net.parameters() if p.requires_grad]
    loss = model.loss(x, y).total
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None and g.requires_grad]
    used, slopes = [p for p, _ in pairs], [g for _, g in pairs]
    generator = torch.Generator().manual_seed(seed)
    direction = [torch.randn(p.shape, generator=generator).to(p) for p in used]
    value = 0.0
    for _ in range(iterations):
        length = math.sqrt(sum(v.square().sum().item() for v in direction))
        direction = [v / max(length, 1e-30) for v in direction]
        products = torch.autograd.grad(slopes, used, direction, retain_graph=True, allow_unused=True)
        after = [torch.zeros_like(p) if h is None else h for p, h in zip(used, products, strict=True)]
        value = sum((a * v).sum().item() for a, v in zip(after, direction, strict=True))
        direction = after
    return abs(value)
