"""From any start into the posterior: what a sampler does in the first three quarters of its burn-in."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify.samplers.bucket import same_kind

if TYPE_CHECKING:
    from bayesify.samplers.base import Group, Sampler

#: the gradients of the mean loss on the present batch, at the weights as they are now
Gradients = Callable[[Sequence[Tensor]], Sequence[Tensor | None]]

SHORTEST = 12  # steps: below, there is nothing to measure
ITERATIONS = 6  # of a look at the curvature, a gradient each
ROUNDS = 4  # looks at the curvature until the masses are heavy enough
WORST = 1e4  # a look does not make masses heavier than that at once
UNSEEN = 3.0  # by how much masses are heavier where nobody could look at the curvature
LEAST = 0.01  # of the mean square gradient of a tensor, for its coordinates that hardly have one
SUMS = ("before", "change", "square_sum")  # G of the last step, Σ ½ (ΔG)², Σ G²


class WarmStart:
    """3n/2 steps, n = `length`, that end in the posterior, with a mass for every coordinate; then all is exact.

    A thermostat that runs during the descent from a far start is driven up by the energy that is set free, and takes
    very long to come back: the weights freeze meanwhile. So it is held at 0, and set to what it should be in the end.

        0 … 3n/4   temperature 0. The masses grow until the steps suit the curvature, looked at anew at times
        3n/4 … n   temperature on, p ~ N(0, m T). V = ½ (ΔG)² of successive steps and G² are measured
        n          m_i = max(least, pace V_i / quiet T, c pace G_i² / limit T), with the smallest c at which the steps
                   suit the curvature; p ~ N(0, m T), ξ_i = h V_i / 2 m_i T
        3n/2       the same once more, from V and G² of the chain itself: those near the mode are smaller

    pace, the move by a unit gradient at mass 1, `limits` of pace · curvature and `quiet`, that of pace · V, are the
    sampler's own. λ, the largest curvature in units of the masses, is found by power iteration with differences of
    gradients over one thermal step. In a loop that cannot give gradients of a batch nobody could hold the descent:
    there the temperature is on from the beginning, with masses three times as heavy, and c = 3.

    length: n in steps
    adapts: False keeps the masses as they were given
    """

    def __init__(self, length: int, adapts: bool = True) -> None:
        self.length, self.adapts = length, adapts
        self.start = self.count = 0  # the first step; how many differences were measured
        self.blind = False  # nobody gives gradients
        self.turned = -1  # the step whose turn was taken
        self.looks = 0  # gradients that were spent
        self.said = ""
        self.still, self.hot = length // 2, 3 * length // 4
        self.ends = (length, 3 * length // 2)
        at_first = {0, 1, 2, length // 8, length // 4, self.still, self.still + 1}
        self.looking = at_first | {end - before for end in self.ends for before in (0, 1)}
        spans = ((5 * length // 8, self.hot), (self.hot + 1, length - 2), (length + 1, self.ends[1] - 2))
        self.measured = {at for span in spans for at in range(*span)}

    def facts(self) -> dict[str, int]:
        """What a resumed chain needs to know of it."""
        return {name: getattr(self, name) for name in ("length", "adapts", "start", "count", "blind")}

    def take(self, facts: dict[str, int]) -> None:
        """Go on from there: the length of another run does not shift a beginning that was made."""
        self.__init__(facts["length"], bool(facts["adapts"]))  # type: ignore[misc]
        self.start, self.count, self.blind = facts["start"], facts["count"], bool(facts["blind"])

    def settings(self, group: "Group", steps: int) -> "Group":
        """The settings of the step that follows `steps` earlier ones."""
        at = steps - self.start
        if at >= self.length:
            return group
        if at < self.hot and not self.blind:
            return {**group, "temperature": 0.0}
        return {**group, "thermostat_rate": 0.0} if "thermostat_rate" in group else group

    def weighed(self, steps: int) -> bool:
        """Were the masses set from what was measured?"""
        return steps - self.start >= self.length - 2

    def phase(self, steps: int) -> str:
        """Where the chain is, in words."""
        at = steps - self.start
        if at >= self.ends[1]:
            return "sampling"
        if at >= self.length:
            return "sampling, masses to be set once more"
        if self.blind:
            return "descent, thermostats held"
        return "descent at temperature 0" if at < self.hot else "heated, thermostats held"

    def turns(self, steps: int) -> bool:
        """Is there something to be done before the step that follows `steps` earlier ones?"""
        at = steps - self.start
        return at in self.looking or at == self.hot or at + 2 in self.ends

    def enters(self, steps: int) -> bool:
        """Does another phase begin with that step?"""
        return steps == self.start or self.phase(steps) != self.phase(steps - 1)

    @torch.no_grad()
    def turn(self, sampler: "Sampler", gradients: Gradients | None = None) -> None:
        """What is to be done before the next step; once, with `gradients` where the caller can give them."""
        at = sampler.steps - self.start
        if self.turned == sampler.steps or not self.turns(sampler.steps):
            return
        self.turned = sampler.steps
        if at == 0:
            self.blind = gradients is None
        if at == 0 or (at == self.still and not self.blind):
            self._begin(sampler, at)
        elif at == self.hot:
            self._heat(sampler)
        elif at + 2 in self.ends:
            self._weigh(sampler, gradients)
        if at in self.looking and self.adapts and gradients is not None:
            limit = sampler.limits[0 if at < self.still else 1 if at < self.length - 2 else 2]
            self._multiply(sampler, self._stiffness(sampler, gradients) / limit)
        if at in self.ends:
            self._release(sampler)
        masses = [sampler.state[p]["mass"] for p in _moved(sampler) if p.numel()]
        least, most = (
            f([pick(m).item() for m in masses]) for f, pick in ((min, Tensor.amin), (max, Tensor.amax))
        )
        self.said = f"warm start, {self.phase(sampler.steps)}; masses {least:.3g} to {most:.3g}"

    def __str__(self) -> str:
        return self.said

    @torch.no_grad()
    def observe(self, sampler: "Sampler") -> None:
        """The gradients of the step that is taken now."""
        at = sampler.steps - self.start
        if at not in self.measured or (sampler.found_inf is not None and bool(sampler.found_inf)):
            return
        first = not self.count
        for p in _moved(sampler):
            if p.grad is None:
                continue
            state, gradient = sampler.state[p], p.grad.detach().to(sampler.state[p]["mass"].dtype)
            gradient = gradient * sampler.factor()
            if first or "before" not in state:
                state.update({name: torch.zeros_like(gradient) for name in SUMS})
            else:
                state["change"].add_((gradient - state["before"]).square_(), alpha=0.5)
            state["square_sum"].addcmul_(gradient, gradient)
            state["before"] = gradient
        self.count += 1

    def _begin(self, sampler: "Sampler", at: int) -> None:
        """As light and as still as at the start."""
        for group in sampler.param_groups:
            for parameters in same_kind([p for p in group["params"] if p.requires_grad]):
                sampler.bucket(parameters, group)
            if self.adapts:
                for p in group["params"]:
                    if p.requires_grad:
                        sampler.state[p]["mass"].fill_(self._floor(sampler, group))
        if at:
            sampler.rest(heat=False)

    def _floor(self, sampler: "Sampler", group: "Group") -> float:
        return (UNSEEN if self.blind else sampler.lightest) * float(group.get("mass", 1.0))

    def _heat(self, sampler: "Sampler") -> None:
        if self.blind:
            self._forget(sampler)
            return
        for group, p, variance, _ in self._sums(sampler):
            if self.adapts:
                state = sampler.state[p]
                state["mass"].copy_(torch.maximum(state["mass"], _quiet(sampler, group, p, variance)))
        self._forget(sampler)
        sampler.rest(heat=True)

    def _weigh(self, sampler: "Sampler", gradients: Gradients | None) -> None:
        """The masses, from V and G²."""
        if not self.adapts:
            return
        least, base = {}, {}
        for group, p, variance, square in self._sums(sampler):
            sampler.weigh(p, group, square)
            floor = torch.full_like(variance, self._floor(sampler, group))
            least[p] = torch.maximum(floor, _quiet(sampler, group, p, variance))
            square = torch.maximum(square, LEAST * square.mean())
            base[p] = sampler.unit(p, group) * square / (sampler.limits[2] * _temperature(group))
        if not least:  # too short to have measured anything
            return
        factor = 1.0 if gradients is not None else UNSEEN
        for _ in range(ROUNDS):
            for p, lightest in least.items():
                sampler.state[p]["mass"].copy_(torch.maximum(lightest, factor * base[p]))
            if gradients is None:
                break
            excess = self._stiffness(sampler, gradients) / sampler.limits[2]
            if excess <= 1:
                break
            # what is too light is lifted by `base`, which may still be below `least` everywhere
            behind = min(
                (least[p] / (factor * base[p]).clamp_min(1e-30)).min().item() for p in least if p.numel()
            )
            factor *= min(excess, WORST) * max(behind, 1.0)
        sampler.rest(heat=True)

    def _release(self, sampler: "Sampler") -> None:
        for group, p, variance, _ in self._sums(sampler):
            sampler.release(p, group, variance)
        self._forget(sampler)

    def _multiply(self, sampler: "Sampler", factor: float) -> None:
        """Masses times `factor` where it is above 1, at the same temperature."""
        factor = min(factor, WORST)
        if factor > 1:
            for p in _moved(sampler):
                state = sampler.state[p]
                state["mass"].mul_(factor)
                if "momentum" in state:
                    state["momentum"].mul_(math.sqrt(factor))

    def _sums(self, sampler: "Sampler") -> list[tuple["Group", Tensor, Tensor, Tensor]]:
        """(group, parameter, V, mean G²) of every parameter that was measured."""
        found = []
        for group in sampler.param_groups:
            for p in group["params"]:
                if "change" in sampler.state.get(p, {}):
                    state, count = sampler.state[p], max(self.count, 2)
                    found.append((group, p, state["change"] / (count - 1), state["square_sum"] / count))
        return found

    def _forget(self, sampler: "Sampler") -> None:
        self.count = 0
        for p in _moved(sampler):
            for name in SUMS:
                sampler.state[p].pop(name, None)

    def _stiffness(self, sampler: "Sampler", gradients: Gradients) -> float:
        """pace · λ at the present masses."""
        moved = _moved(sampler)
        groups = {p: group for group in sampler.param_groups for p in group["params"]}
        roots = [(sampler.unit(p, groups[p]) / sampler.state[p]["mass"]).sqrt() for p in moved]
        generator = torch.Generator().manual_seed((sampler.seed + 7919 * sampler.steps) % 2**63)
        direction = [
            torch.randn(p.shape, generator=generator).to(r) for p, r in zip(moved, roots, strict=True)
        ]
        before, old = self._differentiate(sampler, gradients, moved), [p.detach().clone() for p in moved]
        size, value = math.sqrt(sum(p.numel() for p in moved)), 0.0
        try:
            for _ in range(ITERATIONS):
                scale = size / max(_norm(direction), 1e-30)
                shifted = [o + (scale * r * v).to(o) for o, r, v in zip(old, roots, direction, strict=True)]
                for p, s in zip(moved, shifted, strict=True):
                    p.copy_(s)
                # what is left of the shift after rounding
                taken = _norm([((s - o).to(r) / r) for s, o, r in zip(shifted, old, roots, strict=True)])
                after = self._differentiate(sampler, gradients, moved)
                direction = [r * (a - b) for r, a, b in zip(roots, after, before, strict=True)]
                value = _norm(direction) / max(taken, 1e-30)
                if not math.isfinite(value):
                    return WORST * sampler.limits[0]
        finally:
            for p, o in zip(moved, old, strict=True):
                p.copy_(o)
        return value

    def _differentiate(self, sampler: "Sampler", gradients: Gradients, moved: list[Tensor]) -> list[Tensor]:
        self.looks += 1
        with torch.enable_grad():
            found = gradients(moved)
        pairs = zip(moved, found, strict=True)
        kinds = [torch.promote_types(p.dtype, torch.float32) for p in moved]
        given = [torch.zeros_like(p) if g is None else g.detach() for p, g in pairs]
        return [g.to(kind) * sampler.num_data for g, kind in zip(given, kinds, strict=True)]


def _moved(sampler: "Sampler") -> list[Tensor]:
    return [
        p for group in sampler.param_groups for p in group["params"] if "mass" in sampler.state.get(p, {})
    ]


def _quiet(sampler: "Sampler", group: "Group", p: Tensor, variance: Tensor) -> Tensor:
    """The mass at which gradient noise of this variance does little."""
    return sampler.unit(p, group) * variance / (sampler.quiet(group) * _temperature(group))


def _temperature(group: "Group") -> float:
    return float(group["temperature"]) or 1.0  # of a group that only trains


def _norm(tensors: Sequence[Any]) -> float:
    return math.sqrt(sum(t.double().square().sum().item() for t in tensors))
