"""Coordinate descent over groups of parameters (paper 2, C.2)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class CoordinateDescent(torch.optim.Adam):
    """Adam on one group of parameters at a time: the first for `num_steps` steps, then the next, and round again.

    The gradients of the resting groups are dropped, so their moments stay as they are.
    """

    def __init__(
        self, groups: Sequence[Sequence[Tensor]], num_steps: int, lr: float = 1e-3, **options: Any
    ) -> None:
        super().__init__([{"params": list(g)} for g in groups if g], lr=lr, **options)
        self.num_steps = num_steps
        for group in self.param_groups:
            group["steps_done"] = 0

    @property
    def active(self) -> int:
        """The number of the group that the next step trains."""
        return self.param_groups[0]["steps_done"] // self.num_steps % len(self.param_groups)

    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        active = self.active
        for i, group in enumerate(self.param_groups):
            group["steps_done"] += 1
            for parameter in group["params"] if i != active else ():
                parameter.grad = None
        super().step()
        return loss
