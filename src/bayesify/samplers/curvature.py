"""A look at the curvature: how stiff the posterior is in units of a sampler's masses."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from bayesify.samplers.base import Sampler

#: the gradients of the mean loss on the present batch, at the weights as they are now
Gradients = Callable[[Sequence[Tensor]], Sequence[Tensor | None]]

OWN = 0.99  # of the mean square change of a gradient, explained by the way of its own coordinate
ITERATIONS = 6  # of a look, a gradient each
WORST = 1e4  # masses are not made heavier than that by one look


def stiffness(sampler: "Sampler", moved: list[Tensor], gradients: Gradients) -> float:
    """pace · λ at the present masses, λ the largest curvature in their units: power iteration with differences of
    gradients over one thermal step. `moved` are the same after it."""
    groups = {p: group for group in sampler.param_groups for p in group["params"]}
    roots = [(sampler.unit(p, groups[p]) / sampler.state[p]["mass"]).sqrt() for p in moved]
    generator = torch.Generator().manual_seed((sampler.seed + 7919 * sampler.steps) % 2**63)
    direction = [torch.randn(p.shape, generator=generator).to(r) for p, r in zip(moved, roots, strict=True)]
    before, old = _differentiate(sampler, gradients, moved), [p.detach().clone() for p in moved]
    size, value = math.sqrt(sum(p.numel() for p in moved)), 0.0
    try:
        for _ in range(ITERATIONS):
            scale = size / max(_norm(direction), 1e-30)
            moves = [scale * r * v for r, v in zip(roots, direction, strict=True)]
            pushed = sampler.axes.push(sampler, moved, moves)
            shifted = [o + m.to(o) for o, m in zip(old, pushed, strict=True)]
            for p, s in zip(moved, shifted, strict=True):
                p.copy_(s)
            # what is left of the shift after rounding
            left = [(s - o).to(r) for s, o, r in zip(shifted, old, roots, strict=True)]
            left = sampler.axes.push(sampler, moved, left, back=True)
            taken = _norm([m / r for m, r in zip(left, roots, strict=True)])
            after = _differentiate(sampler, gradients, moved)
            direction = [r * (a - b) for r, a, b in zip(roots, after, before, strict=True)]
            value = _norm(direction) / max(taken, 1e-30)
            if not math.isfinite(value):
                return WORST * sampler.limits[0]
    finally:
        for p, o in zip(moved, old, strict=True):
            p.copy_(o)
    return value


class OwnCurvature:
    """λ in ΔG = λ Δθ, coordinate by coordinate, of those that it says all of: neither data nor other weights act on
    them. What is added up lies in the state of the parameter, as `names`.

    prefix: of the names
    """

    def __init__(self, prefix: str) -> None:
        self.names = tuple(prefix + name for name in ("place", "cross", "way"))  # θ before, Σ ΔG Δθ, Σ (Δθ)²

    def add(self, sampler: "Sampler", p: Tensor, change: Tensor | None) -> None:
        """change: ΔG since the last time; None: there was none."""
        place, cross, way = self.names
        state, now = sampler.state[p], sampler.axes.place(sampler, p)
        if change is None:
            state[cross], state[way] = torch.zeros_like(now), torch.zeros_like(now)
        else:
            moved = now - state[place]
            state[cross].addcmul_(change, moved)
            state[way].addcmul_(moved, moved)
        state[place] = now

    def found(self, state: dict[str, Tensor], changes: Tensor) -> tuple[Tensor, Tensor]:
        """λ, and where it says all. changes: Σ (ΔG)²."""
        _, cross, way = self.names
        curvature = state[cross] / state[way].clamp_min(1e-30)
        return curvature, (curvature * state[cross] > OWN * changes) & (curvature > 0)


def _differentiate(sampler: "Sampler", gradients: Gradients, moved: list[Tensor]) -> list[Tensor]:
    with torch.enable_grad():
        found = gradients(moved)
    pairs = zip(moved, found, strict=True)
    kinds = [torch.promote_types(p.dtype, torch.float32) for p in moved]
    given = [torch.zeros_like(p) if g is None else g.detach() for p, g in pairs]
    whole = [g.to(kind) * sampler.num_data for g, kind in zip(given, kinds, strict=True)]
    return sampler.axes.pull(sampler, moved, whole)


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(sum(t.double().square().sum().item() for t in tensors))
