"""An exponential moving average of the parameters."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from bayesify import torch_internals as internals


class MovingAverage:
    """average ← decay · average + (1 − decay) · parameter, after every step; a slow start by step / (step + 10)."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.average = [p.detach().clone() for p in self.parameters]
        self.steps = 0

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters after a step."""
        self.steps += 1
        decay = min(self.decay, self.steps / (self.steps + 10))
        internals.foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The averaged parameters in the model for a while."""
        trained = [p.detach().clone() for p in self.parameters]
        self._write(self.average)
        try:
            yield
        finally:
            self._write(trained)

    @torch.no_grad()
    def _write(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value)

    def finish(self) -> None:
        """Leave the averaged parameters in the model."""
        self._write(self.average)

    def state_dict(self) -> dict[str, object]:
        """For a checkpoint."""
        return {"average": list(self.average), "steps": self.steps}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, object]) -> None:
        """From a checkpoint."""
        self.steps = int(state["steps"])  # type: ignore[call-overload]
        for mine, stored in zip(self.average, state["average"], strict=True):  # type: ignore[call-overload]
            mine.copy_(stored)
