"""The KL of a posterior of components, in its forms."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from bayesify.divergences.components import (
    Mixture,
    carry_squares,
    categorical_entropy,
    monte_carlo,
    narrow_normal,
    weighted_squares,
)
from bayesify.posteriors.patched.multi_tensor import FlatComponents

if TYPE_CHECKING:
    from bayesify.posteriors.patched.components import Components

KL_FORMS = ("auto", "l2", "full", "monte_carlo")
ROLES = ("patched_weight", "patched_bias", "shared_weight", "shared_bias")


class Held(NamedTuple):
    """The tensors of one evaluation, by name: the network's own, patched and shared, and the other centroids."""

    own: dict[str, Tensor]
    others: dict[str, Tensor]  # (K − 1, *shape) of the patched ones


class ComponentsKL:
    """Σ (τ p_k / 2) ‖M_k‖² over patched and Σ (τ / 2) ‖M‖² over shared tensors (eq. 6), and what is added to it.

    form:       "l2": that term; "full": also the constant and −H(z); "auto": of these what has a gradient;
                "monte_carlo": the true mixture by `num_draws` draws, components overlapping or not
    precision:  τ for each of ROLES
    l2:         λ for each of ROLES in place of τ p_k / 2 (C.1): then the result is a penalty on the mean loss
    """

    def __init__(
        self, form: str, precision: Mapping[str, float], l2: Mapping[str, float] | None, num_draws: int
    ) -> None:
        self.form = form
        self.precision = dict(precision)
        self.l2 = None if l2 is None else dict(l2)
        self.num_draws = num_draws

    @property
    def is_on(self) -> bool:
        """Does it hold any weight at all?"""
        return any((self.precision if self.l2 is None else self.l2).values())

    def __call__(self, q: "Components", held: Held) -> Tensor:
        """The share of the tensors held."""
        if self.form == "monte_carlo":
            return self._true(q, held)
        return self._complete(q, held, self.squares(q, held))

    def carried(
        self, q: "Components", held: Held, flat: FlatComponents | None = None
    ) -> tuple[Tensor, Held, Tensor | None]:
        """The same, the tensors to run the network with, and the row of those in `flat`: so gradients of the squares
        and of the network are added for all tensors in one go."""
        if self.form == "monte_carlo" or q.mixing.learned or len(set(q.probs[1:])) > 1:
            return self(q, held), held, None if flat is None else flat.join(*held)
        apart = () if flat is None else flat.names
        keys = [(part, name) for part in (0, 1) for name in held[part] if name not in apart]
        weights = [self.weight(q, name, part) for part, name in keys]
        total, tensors = carry_squares([held[part][name] for part, name in keys], weights)
        again = Held(dict(held.own), dict(held.others))
        for (part, name), tensor in zip(keys, tensors, strict=True):
            again[part][name] = tensor
        row = None
        if flat is not None:
            row = flat.join(*held)
            total = total + flat.squares(row)
        return self._complete(q, held, total), again, row

    def squares(self, q: "Components", held: Held) -> Tensor:
        """Σ (τ p_k / 2) ‖M_k‖² + Σ (τ / 2) ‖M‖²."""
        tensors: list[Tensor] = []
        weights: list[float] = []
        learned: list[Tensor] = []
        for name, own in held.own.items():
            if name in q.patches and q.mixing.learned:
                learned.append(self._expected_square(q, name, held))
                continue
            components = [own, *held.others[name].unbind(0)] if name in held.others else [own]
            tensors += components
            weights += [self.weight(q, name, k) for k in range(len(components))]
        if tensors:
            learned.append(weighted_squares(tensors, weights))
        return torch.stack(learned).sum() if learned else torch.zeros((), device=q.device)

    def constant(self, q: "Components", held: Held) -> float | Tensor:
        """Σ (D/2)(τσ² − 1 − log τσ²); infinite at std=0, the limit of a narrow component."""
        total: Any = 0.0
        for name, own in held.own.items():
            tau = self.precision[q.role(name)]
            if name in q.patches:
                total += narrow_normal(own.numel(), tau, q.std_of(name)) if q.std else math.inf
            elif q.shared_std:
                total += narrow_normal(own.numel(), tau, q.shared_std)
        return total

    def entropy(self, q: "Components", held: Held) -> Tensor:
        """Σ H(z) over independent assignments; a unit is counted with its first tensor."""
        first = {patch.unit: name for name, patch in reversed(q.patches.items())}
        total = torch.zeros((), device=q.device)
        for unit, name in first.items():
            if name in held.own:
                total = total + q.mixing.sizes[unit] * categorical_entropy(q.mixing.probs(unit, total))
        return total

    def _complete(self, q: "Components", held: Held, total: Tensor) -> Tensor:
        """The squares and, of constant and −H(z), what the form asks for."""
        if self.l2 is not None or self.form == "l2":
            return total
        if self.form == "full" or q.mixing.learned:
            total = total - self.entropy(q, held)
        return total + self.constant(q, held) if self.form == "full" or q.learn_std else total

    def weight(self, q: "Components", name: str, k: int) -> float:
        """What the square of component k is multiplied with."""
        scale = self._scale(q, name)
        if name in q.shared:
            return scale
        keep_prob = q.probs[0] if q.assignment.zero else 1.0  # there the centroid is W / p_1
        return scale * (q.probs[k] if self.l2 is None else 1.0) / keep_prob**2

    def _scale(self, q: "Components", name: str) -> float:
        return self.precision[q.role(name)] / 2 if self.l2 is None else self.l2[q.role(name)]

    def _expected_square(self, q: "Components", name: str, held: Held) -> Tensor:
        """(τ/2) Σ_k p_k ‖M_k‖² with gradients to p."""
        squares = torch.stack([m.square().sum() for m in q.centroids(name, held) if m is not None])
        probs = q.mixing.probs(q.patches[name].unit, squares)
        return self._scale(q, name) * (probs[: len(squares)] * squares).sum()

    def _true(self, q: "Components", held: Held) -> Tensor:
        """The mixtures by draws, the shared tensors exactly."""
        shared = Held({name: w for name, w in held.own.items() if name in q.shared}, {})
        total: Any = self.squares(q, shared) + self.constant(q, shared)
        units: dict[str, list[Mixture]] = {}
        for name, patch in q.patches.items():
            if name in held.own:
                centroids = q.centroids(name, held)
                stack = torch.stack([torch.zeros_like(centroids[0]) if m is None else m for m in centroids])
                stack = stack.view(len(stack), *patch.view)
                tau = self.precision[q.role(name)]
                units.setdefault(patch.unit, []).append(Mixture(stack, patch.z_shape, q.std_of(name), tau))
        for unit, mixtures in units.items():
            probs = q.mixing.probs(unit, mixtures[0].centroids)
            total = total + monte_carlo(mixtures, probs, self.num_draws)
        return total
