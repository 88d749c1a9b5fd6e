"""From any start into the posterior: what a sampler does in the first three quarters of its burn-in."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify.samplers.axes import Moments
from bayesify.samplers.brake import Brake
from bayesify.samplers.bucket import same_kind
from bayesify.samplers.curvature import WORST, Gradients, stiffness
from bayesify.samplers.masses import OWN, moved, nominal_temperature, prior_mass, quiet_mass, trained

if TYPE_CHECKING:
    from bayesify.samplers.base import Group, Sampler

SHORTEST = 12  # steps: below, there is nothing to measure
BATCHES = 64  # that the inputs of layers are looked at in
ROUNDS = 4  # looks at the curvature until the masses are heavy enough
UNSEEN = 3.0  # by how much masses are heavier where nobody could look at the curvature
LIGHTER = 1e-3  # of the lightest mass of networks, for that of a linear model
LEAST = 0.01  # of the mean square gradient of a tensor, for its coordinates that hardly have one
PULL = 0.05  # the furthest that a gradient moves what only trains, in units of the parameter
FAR = 0.3  # a noise level that is e^0.3 of what it was has another curvature, by e^0.6
FACTS = ("length", "start", "count", "spent")  # numbers that a resumed chain needs
SUMS = ("before", "change", "square_sum", *OWN.names)  # G of the last step, Σ ½ (ΔG)², Σ G²


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
    linear: the network is one linear layer: no unit can fall silent, and nothing but what is measured keeps its last
            masses from being light
    """

    def __init__(self, length: int, adapts: bool = True, linear: bool = False) -> None:
        self.length, self.adapts, self.linear = length, adapts, linear
        self.start = self.count = 0  # the first step; how many differences were measured
        self.blind = False  # nobody gives gradients
        self.turned = -1  # the step whose turn was taken
        self.spent = 0  # looks beside those that are due at their time
        self.brake = Brake(length)
        self.said = ""
        self.still, self.hot = length // 2, 3 * length // 4
        self.ends = (length, 3 * length // 2)
        at_first = {0, 1, 2, length // 8, length // 4, self.still, self.still + 1}
        self.looking = at_first | {end - before for end in self.ends for before in (0, 1)}
        spans = ((5 * length // 8, self.hot), (self.hot + 1, length - 2), (length + 1, self.ends[1] - 2))
        self.measured = [range(*span) for span in spans]

    def facts(self) -> dict[str, Any]:
        """What a resumed chain needs to know of it."""
        mine = {name: getattr(self, name) for name in (*FACTS, "adapts", "linear", "blind")}
        return mine | {"brake": {**vars(self.brake)}}

    def take(self, facts: dict[str, Any]) -> None:
        """Go on from there: the length of another run does not shift a beginning that was made."""
        self.__init__(facts["length"], bool(facts["adapts"]), bool(facts.get("linear")))  # type: ignore[misc]
        self.blind = bool(facts["blind"])
        for name in FACTS:
            setattr(self, name, facts.get(name, 0))
        vars(self.brake).update(facts.get("brake", {}))

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

    def turns(self, sampler: "Sampler") -> bool:
        """Is there something to be done before the next step?"""
        at = sampler.steps - self.start
        due = at in self.looking or at == self.hot or at + 2 in self.ends
        return due or self.watches(sampler) or self._behind(sampler)

    def watches(self, sampler: "Sampler") -> bool:
        """Are the inputs of this step to be looked at?"""
        at = sampler.steps - self.start
        return self.still - BATCHES <= at < self.still and self.adapts and self.turned != sampler.steps

    def _behind(self, sampler: "Sampler") -> bool:
        """Is the last look one at another curvature, because a noise level has moved on since?"""
        if sampler.steps - self.start >= self.ends[1] or self.spent >= self.length // 8:
            return False
        ways = [
            p.detach() - sampler.state[p]["looked"] for p in trained(sampler) if "looked" in sampler.state[p]
        ]
        return any(bool((way.abs() > FAR).any()) for way in ways)

    def enters(self, steps: int) -> bool:
        """Does another phase begin with that step?"""
        return steps == self.start or self.phase(steps) != self.phase(steps - 1)

    @torch.no_grad()
    def turn(
        self,
        sampler: "Sampler",
        gradients: Gradients | None = None,
        entrances: Mapping[Any, int] | None = None,
        inputs: Moments | None = None,
    ) -> None:
        """What is to be done before the next step; once, with `gradients` where the caller can give them.

        entrances: weights that are multiplied by the data themselves, with the dimension that the inputs are in
        inputs:    what is seen of the inputs of layers, where it is asked for (see `watches` and `axes`)
        """
        at = sampler.steps - self.start
        if self.turned == sampler.steps or not self.turns(sampler):
            return
        if inputs:
            sampler.axes.add(sampler, inputs)
        self.turned, looking = sampler.steps, at in self.looking
        if not looking and self._behind(sampler):
            looking, self.spent = True, self.spent + 1
        if at == 0:
            self.blind = gradients is None
        if at == (self.hot if self.blind else self.still):
            sampler.axes.turn(sampler)
        if at == 0 or (at == self.still and not self.blind):
            self._begin(sampler, at)
        elif at == self.hot:
            self._heat(sampler)
        elif at + 2 in self.ends:
            self._weigh(sampler, gradients, entrances or {})
        if looking and self.adapts and gradients is not None:
            limit = sampler.limits[0 if at < self.still else 1 if at < self.length - 2 else 2]
            self._raise(sampler, gradients, min(limit, sampler.limits[0] / self.brake.factor))
        if at in self.ends:
            self._release(sampler)
        masses = [sampler.state[p]["mass"] for p in moved(sampler) if p.numel()]
        least, most = (
            f([pick(m).item() for m in masses]) for f, pick in ((min, Tensor.amin), (max, Tensor.amax))
        )
        self.said = f"warm start, {self.phase(sampler.steps)}; masses {least:.3g} to {most:.3g}"

    def __str__(self) -> str:
        return self.said

    def bound(self, sampler: "Sampler", group: "Group") -> None:
        """What only trains is moved by the gradient of one step no further than `PULL`. The gradient of a noise level
        grows as the squares of the errors: from a start far too low a step would carry it out of sight."""
        for p in group["params"]:
            if p.grad is not None and "mass" in sampler.state.get(p, {}):
                most = PULL * sampler.state[p]["mass"] / (sampler.unit(p, group) * sampler.factor())
                p.grad.clamp_(-most, most)

    @torch.no_grad()
    def observe(self, sampler: "Sampler") -> None:
        """The gradients of the step that is taken now."""
        at = sampler.steps - self.start
        if at >= self.ends[1] or (sampler.found_inf is not None and bool(sampler.found_inf)):
            return
        if self._braked(sampler, at) or not any(at in span for span in self.measured):
            return
        first = not self.count
        for p in moved(sampler):
            if p.grad is None:
                continue
            state, gradient = sampler.state[p], sampler.gradient(p)
            if first or "before" not in state:
                state.update({name: torch.zeros_like(gradient) for name in SUMS})
                OWN.add(sampler, p, None)
            else:
                change = gradient - state["before"]
                OWN.add(sampler, p, change)
                state["change"].add_(change.square_(), alpha=0.5)
            state["square_sum"].addcmul_(gradient, gradient)
            state["before"] = gradient
        self.count += 1

    def _braked(self, sampler: "Sampler", at: int) -> bool:
        """Were the steps too long, and the masses made heavier?"""
        if at in (self.still, self.hot, *self.ends):
            self.brake.loosen()
        if at + 1 == self.ends[1]:
            self.brake.forget(sampler, moved(sampler))
        elif self.adapts and self.brake.watch(sampler, moved(sampler), at >= self.length // 4):
            sampler.rest(heat=self.blind or at >= self.hot)
            return True
        return False

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
        """The lightest mass: the way down goes no faster by a larger step than by the usual one."""
        lr: float = group["initial_lr"] if "initial_lr" in group else group["lr"]
        larger = max(lr / sampler.default_lr(sampler.num_data), 1.0)
        pace = float(larger) ** (2 if "mass" in group else 1)
        return pace * (UNSEEN if self.blind else sampler.lightest) * float(group.get("mass", 1.0))

    def _heat(self, sampler: "Sampler") -> None:
        if self.blind:
            self._forget(sampler)
            sampler.rest(heat=True)
            return
        for group, p, variance, _ in self._sums(sampler):
            if self.adapts:
                state = sampler.state[p]
                state["mass"].copy_(torch.maximum(state["mass"], quiet_mass(sampler, group, p, variance)))
        self._forget(sampler)
        sampler.rest(heat=True)

    def _weigh(self, sampler: "Sampler", gradients: Gradients | None, entrances: Mapping[Any, int]) -> None:
        """The masses, from V and G²."""
        if not self.adapts:
            return
        least, base, most = {}, {}, {}
        for group, p, variance, square in self._sums(sampler):
            sampler.weigh(p, group, square)
            floor = torch.full_like(variance, self._floor(sampler, group) * (LIGHTER if self.linear else 1.0))
            least[p] = torch.maximum(floor, quiet_mass(sampler, group, p, variance))
            square = torch.maximum(square, LEAST * square.mean())
            base[p] = sampler.unit(p, group) * square / (sampler.limits[2] * nominal_temperature(group))
            if group["temperature"] == 0:  # its gradients are those of its way, which ends
                base[p] = least[p]
            elif p in entrances:
                most[p] = prior_mass(sampler, group, p, entrances[p], self.length)
        if not least:  # too short to have measured anything
            return
        factor = 1.0 if gradients is not None else UNSEEN
        for _ in range(ROUNDS):
            for p, lightest in least.items():
                mass = torch.maximum(lightest, factor * base[p])
                sampler.state[p]["mass"].copy_(torch.minimum(mass, most[p]) if p in most else mass)
            if gradients is None:
                break
            excess = stiffness(sampler, moved(sampler), gradients) / sampler.limits[2]
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

    def _raise(self, sampler: "Sampler", gradients: Gradients, limit: float) -> None:
        """All masses by one factor, at the same temperature, until pace · λ is within the limit."""
        for _ in range(ROUNDS):
            excess = stiffness(sampler, moved(sampler), gradients) / limit
            factor = max(min(excess, WORST), 1.0)
            for p in moved(sampler):
                state = sampler.state[p]
                state["mass"].mul_(factor)
                if "momentum" in state:
                    state["momentum"].mul_(math.sqrt(factor))
            if excess <= WORST:
                break
        for p in trained(sampler):
            sampler.state[p]["looked"] = p.detach().clone()

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
        for p in moved(sampler):
            for name in SUMS:
                sampler.state[p].pop(name, None)
