"""The loss of a running chain, and over how many steps it remembers where it was."""

from typing import Any

import torch
from torch import Tensor, nn

from bayesify.objectives import Loss
from bayesify.samplers.convergence import autocorrelation, ess
from bayesify.studies.diagnostics.verdict import independent


class Losses:
    """The training loss that a model returns, one mean for every `every` steps.

    A mean, because the loss of one mini-batch is mostly that batch's; and read from the device only then.
    """

    def __init__(self, model: nn.Module | None, every: int) -> None:
        self.every = every
        self.pending: list[Tensor] = []
        self.means: list[float] = []
        self.handle = None
        if model is not None:  # `disable` loads the compiler: not before there is something to hear
            self.handle = model.register_forward_hook(torch.compiler.disable(self._hear))

    def _hear(self, module: Any, args: Any, output: Any) -> None:
        if isinstance(output, Loss) and output.total.requires_grad:
            self.pending.append(output.total.detach().clone())  # a CUDA graph writes to the same place again

    def look(self) -> None:
        """The losses since the last look as one number."""
        if self.pending:
            self.means.append(torch.stack(self.pending).mean().item())
            self.pending = []

    def close(self) -> None:
        """Hear no more."""
        if self.handle is not None:
            self.handle.remove()

    def settled(self) -> Tensor:
        """The means without their first quarter."""
        return torch.tensor(self.means[len(self.means) // 4 :], dtype=torch.float64)

    def autocorrelation(self) -> Tensor:
        """ρ at lags of 0, every, 2 · every … steps."""
        return autocorrelation(self.settled())

    def independent(self) -> float | None:
        """How many independent values the means are worth; None where there are too few to say."""
        series = self.settled()
        return ess(series[None]).item() if len(series) >= 8 and series.std() > 0 else None

    def __str__(self) -> str:
        size, worth = len(self.settled()), self.independent()
        if worth is None:
            return "loss: too few values to tell how long it is correlated"
        steps = self.every * size / worth
        return (
            f"loss: correlated over {steps:.0f} steps; {self.every * size} steps are worth "
            f"{independent(worth)}. Draws much closer than that repeat each other"
        )
