"""The law of the assignments z: fixed probabilities, or learned ones with a straight-through Gumbel gradient."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Generator, Tensor, nn

from bayesify.weights.dotted_names import put


class Mixing(nn.Module):
    """z ~ Categorical(p) for every unit.

    units:    unit -> the number of its independent assignments
    probs:    p_k, the start where p is learned; `learned` gives every unit logits of its own
    """

    def __init__(
        self, units: Mapping[str, int], probs: Sequence[float], learned: bool, temperature: float
    ) -> None:
        super().__init__()
        self.sizes = dict(units)
        self.fixed = tuple(probs)
        self.learned = learned
        self.temperature = temperature
        self.units = nn.Module()
        start = torch.tensor([math.log(p) for p in probs])
        self.logits = {
            unit: put(self.units, f"{unit}.logits".lstrip("."), nn.Parameter(start.clone()))
            for unit in (units if learned else ())
        }

    def probs(self, unit: str, like: Tensor) -> Tensor:
        """p_k of a unit, (K,)."""
        if self.learned:
            return self.logits[unit].get().softmax(0)
        return torch.tensor(self.fixed, dtype=like.dtype, device=like.device)

    def draw(
        self,
        device: torch.device,
        n: int | None = None,
        generator: Generator | None = None,
        stratified: bool = False,
    ) -> Tensor:
        """Assignments of all units in a row: (n, sizes), or (sizes,) without n.

        stratified: among n draws component k comes n p_k times, rounded up or down (for a single assignment)
        """
        count = sum(self.sizes.values())
        if stratified and n is not None:
            u = (torch.arange(n, device=device)[:, None] + _uniform((1, 1), device, generator)) / n  # (n, 1)
        else:
            u = _uniform((count,) if n is None else (n, count), device, generator)
        if not self.learned:
            return _categories(u, self._thresholds())
        parts = [
            (part[..., None] >= self.probs(unit, part).cumsum(0)[:-1]).sum(-1)
            for unit, part in zip(self.sizes, u.split(list(self.sizes.values()), -1), strict=True)
        ]
        return torch.cat(parts, -1)

    def by_unit(self, z: Tensor) -> dict[str, Tensor]:
        """The row of assignments cut up: (…, size) each."""
        return dict(zip(self.sizes, z.split(list(self.sizes.values()), -1), strict=True))

    def draw_on_host(self, generator: Generator | None = None) -> dict[str, int]:
        """One fixed-law assignment per unit as Python numbers: a component is a view then, and no kernel runs."""
        device = torch.device("cpu") if generator is None else generator.device
        u = _uniform((len(self.sizes),), device, generator)
        return dict(zip(self.sizes, _categories(u, self._thresholds()).tolist(), strict=True))

    def relaxed(self, unit: str, generator: Generator | None = None) -> Tensor:
        """One-hot assignments with the gradient of softmax((log p + G) / temperature): (size, K)."""
        logits = self.logits[unit].get()
        u = _uniform((self.sizes[unit], len(self.fixed)), logits.device, generator)
        gumbel = -(-u.clamp_min(1e-20).log()).clamp_min(1e-20).log()
        soft = ((logits.log_softmax(0) + gumbel) / self.temperature).softmax(-1)
        hard = torch.nn.functional.one_hot(soft.argmax(-1), len(self.fixed)).to(soft.dtype)
        return hard + (soft - soft.detach())  # the bracket is zero: the value is exactly one-hot

    def _thresholds(self) -> list[float]:
        return [math.fsum(self.fixed[: k + 1]) for k in range(len(self.fixed) - 1)]


def _uniform(shape: tuple[int, ...], device: torch.device, generator: Generator | None) -> Tensor:
    if generator is None:
        return torch.rand(shape, device=device)
    return torch.rand(shape, device=generator.device, generator=generator).to(device)


def _categories(u: Tensor, thresholds: list[float]) -> Tensor:
    """z = #{k : u ≥ p_1 + … + p_k}."""
    z = (u >= thresholds[0]).long()
    for threshold in thresholds[1:]:
        z = z + (u >= threshold)
    return z
