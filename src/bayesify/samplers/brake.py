"""Masses become heavier where steps are too long for the noise of the gradients, on the way into the posterior."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from bayesify.samplers.base import Sampler

SPANS, SHORTEST = 30, 10  # of a warm start's length; steps
RESTING = 5.0  # a level that is left as it is: at temperature 0 the weights are some 5 posterior widths off
LEAVING = 10.0  # times the lowest level, in a span
HEAVIER = 4.0
MOST = 12  # times; masses that are 1e7 times as heavy would not do either
PLACE, BEFORE = "brake_place", "brake_gradient"  # states: where to go back to, the gradient of the last step


class Brake:
    """Looks at pace · ½ (ΔG)² / mass, the level of what changes in the gradients from step to step, span by span.

    A look at the curvature sees one batch. Where few examples are in one, or some are far larger than others, the next
    batch is steeper, and steps that suit each can be too long for all in turn: the weights hover far around the
    posterior, or leave it faster and faster. So a level that is high and does not fall makes all masses `HEAVIER`, in
    later looks as well, and a chain that flies off goes back to the last place where it was lowest.
    """

    def __init__(self, length: int) -> None:
        self.span = max(length // SPANS, SHORTEST)
        self.factor = 1.0  # by which masses are heavier than the curvature asks for
        self.times, self.lowest = 0, math.inf
        self.loosen()

    def loosen(self) -> None:
        """Another phase begins, with other masses or another temperature; masses stay as heavy as was due."""
        self.factor = max(1.0, self.factor * min(self.lowest / RESTING, 1.0))
        self.total, self.count, self.fresh = 0.0, 0, True  # of the span; the first of these masses
        self.lowest = math.inf  # at the place to go back to

    def watch(self, sampler: "Sampler", moved: Sequence[Tensor], settles: bool = True) -> bool:
        """Look at the gradients of the step that is to be taken. True: masses changed, and `moved` are to rest.

        settles: the level should fall; before, light masses go far along directions of little curvature
        """
        if self.times >= MOST:
            return False
        first = math.isinf(self.lowest) or (self.fresh and not self.count)
        level = self._level(sampler, moved, first)
        if first:  # changes are no larger than that on the way down
            self._stay(sampler, moved, level if math.isinf(self.lowest) else max(level, self.lowest))
            self.count = 1
            return False
        self.total, self.count = self.total + level, self.count + 1
        leaves = not self.total / self.span < LEAVING * max(self.lowest, RESTING)
        if not leaves and self.count < self.span:
            return False
        mean = self.total / self.count
        hovers = settles and not self.fresh and mean > max(RESTING, self.lowest)
        if mean <= self.lowest:
            self._stay(sampler, moved, mean)
        self.total, self.count, self.fresh = 0.0, 0, False
        if leaves or hovers:
            self._press(sampler, moved, back=leaves)
        return leaves or hovers

    def _press(self, sampler: "Sampler", moved: Sequence[Tensor], back: bool) -> None:
        self.factor, self.times, self.fresh = self.factor * HEAVIER, self.times + 1, True
        self.lowest /= HEAVIER
        self.span *= 1 if back else 2  # what is heavier falls more slowly
        for p in moved:
            sampler.state[p]["mass"].mul_(HEAVIER)
            if back:
                p.copy_(sampler.state[p][PLACE])
                sampler.state[p].pop(BEFORE, None)
                if p.grad is not None:  # of the place that it was taken from
                    p.grad.zero_()

    def _stay(self, sampler: "Sampler", moved: Sequence[Tensor], level: float) -> None:
        self.lowest = level
        for p in moved:
            sampler.state[p][PLACE] = p.detach().clone()

    def _level(self, sampler: "Sampler", moved: Sequence[Tensor], first: bool) -> float:
        """The mean over what is sampled; a chain in the posterior has 0.4 or less. `first`: of G² itself."""
        known, total, count = {id(p) for p in moved}, 0.0, 0
        for group in sampler.param_groups:
            for p in group["params"]:
                if group["temperature"] > 0 and id(p) in known and p.grad is not None:
                    state, gradient = sampler.state[p], sampler.gradient(p)
                    change = gradient if first else gradient - state.get(BEFORE, gradient)
                    pace = sampler.unit(p, group) / state["mass"]
                    total = total + (change.square() * pace).sum() * (1.0 if first else 0.5)
                    count += p.numel()
                    state[BEFORE] = gradient
        return float(torch.as_tensor(total)) / max(count, 1)

    @staticmethod
    def forget(sampler: "Sampler", moved: Sequence[Tensor]) -> None:
        """No way back any more."""
        for p in moved:
            for name in (PLACE, BEFORE):
                sampler.state[p].pop(name, None)
