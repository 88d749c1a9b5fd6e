"""The split operators of the samplers with momentum; a sampler is an order of them.

From the SDE of paper 4 (eq. 1-4, corrected), for a potential U, gradient G = ∇U, kinetic energy K, mass m,
temperature T, thermostat ξ with rate κ, injected noise α(ξ) and friction β = α(ξ) + ξ:

    dθ = K′(p) dt
    dp = −G dt − β m K′(p) dt + √(2 α m T) dW
    dξ = κ m (K′² − T K″) dt          stationary: ξ ~ N(B / 2mT, κ T), B = h Var G

    A  θ ← θ + h K′(p)                                   drift
    B  p ← p − h G                                       kick
    O  p ← e^{−bh} p + √(α m T (1 − e^{−2bh}) / b) η     friction and noise, b = β / w(p) held for the step
    P  p ← e^{−bh} p − (1 − e^{−bh})/b G + the same η    B and O solved together (eq. 10, corrected)
    D  ξ ← ξ + κ h (m K′² − T m K″)                      thermostat

An operator that stands n times in an order takes n steps of h/n.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bayesify.samplers.kinetic import Kinetic, Number

TINY = 1e-30  # a friction of 0 becomes this, so that one can divide by it


@dataclass
class Phase:
    """Where some coordinates are, and the settings they move by. Tensors are (coordinates,); operators change
    momentum and thermostat in place."""

    momentum: Tensor
    thermostat: Tensor | None
    gradient: Tensor  # of U, a sum over the data set
    noise: Tensor | None  # η ~ N(0, 1); None at temperature 0
    h: Number
    mass: Number
    temperature: Number
    rate: Number  # κ
    kinetic: Kinetic
    injected: Callable[[Tensor | None], Number]  # α(ξ)
    moves: list[Tensor] = field(default_factory=list)  # of θ


def drift(z: Phase, h: Number) -> None:
    """A: θ ← θ + h K′(p)."""
    z.moves.append(z.kinetic.velocity(z.momentum, z.mass).mul_(h))


def kick(z: Phase, h: Number) -> None:
    """B: p ← p − h G."""
    z.momentum.sub_(h * z.gradient)


def friction(z: Phase, h: Number) -> None:
    """O: p ← e^{−bh} p + noise."""
    alpha, loss, mean = _decay(z, h)
    z.momentum.addcmul_(loss, z.momentum)
    _inject(z, h, alpha, loss, mean)


def momentum(z: Phase, h: Number) -> None:
    """P: p ← e^{−bh} p − (1 − e^{−bh})/b G + noise, B and O solved together."""
    alpha, loss, mean = _decay(z, h)
    z.momentum.addcmul_(loss, z.momentum).sub_((mean * z.gradient).mul_(h))
    _inject(z, h, alpha, loss, mean)


def thermostat(z: Phase, h: Number) -> None:
    """D: ξ ← ξ + κ h (m K′² − T m K″)."""
    if z.thermostat is None or z.noise is None:  # at temperature 0 there is none to hold
        return
    held = z.temperature * z.kinetic.curvature(z.momentum, z.mass)
    v = z.kinetic.velocity(z.momentum, z.mass)
    z.thermostat.add_(v.mul_(v).mul_(z.mass).sub_(held).mul_(z.rate * h))


OPERATORS = {"A": drift, "B": kick, "O": friction, "P": momentum, "D": thermostat}


def advance(z: Phase, order: str) -> Phase:
    """One step: the operators of `order`, from left to right."""
    for letter in order:
        OPERATORS[letter](z, z.h / order.count(letter))
    return z


def _decay(z: Phase, h: Number) -> tuple[Number, Tensor, Tensor]:
    """α, e^{−bh} − 1, and (1 − e^{−bh}) / bh, which is 1 at bh = 0: SGNHT's friction may vanish or be negative."""
    alpha = z.injected(z.thermostat)
    beta = alpha if z.thermostat is None else alpha + z.thermostat
    x = z.kinetic.slowed(-h * beta, z.momentum, z.mass)
    x = torch.as_tensor(x, dtype=z.momentum.dtype, device=z.momentum.device) - TINY
    loss = torch.expm1(x)
    return alpha, loss, loss / x


def _inject(z: Phase, h: Number, alpha: Number, loss: Tensor, mean: Tensor) -> None:
    """p ← p + √(α m T (1 − e^{−2bh}) / b) η, by 1 − e^{−2x} = (1 − e^{−x}) (2 + (e^{−x} − 1))."""
    if z.noise is not None:
        # a new tensor: with a mass for every coordinate α may still be one number
        variance = (alpha * mean).mul_(2 + loss) * (h * z.mass * z.temperature)
        z.momentum.addcmul_(variance.sqrt_(), z.noise)
