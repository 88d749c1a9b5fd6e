"""A fixed set of draws, each with statistics of batch norm of its own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify import torch_internals as internals
from bayesify.weights import Slot

KEY = "draws.statistics."


class SettledDraws:
    """Draws 0 … S − 1, made from their numbers whenever they are needed, and the running statistics of each.

    A draw moves what enters a norm layer, and statistics of the mean network are too small for it. What is stored
    are the statistics alone, (S, channels) each; the noise of a draw comes from a generator on the CPU, so that it is
    the same everywhere.

    num: S
    """

    def __init__(self, net: nn.Module, num: int) -> None:
        norms = [
            (path, module)
            for path, module in net.named_modules()
            if isinstance(module, internals.BatchNorm) and module.track_running_stats
        ]
        self.slots = {
            f"{path}.{key}" if path else key: [Slot(module, "_buffers", key)]
            for path, module in norms
            for key in ("running_mean", "running_var")
        }
        self.num = num if norms else 0
        self.statistics: dict[str, Tensor] = {}

    def __len__(self) -> int:
        """Draws that have their statistics."""
        return len(next(iter(self.statistics.values()))) if self.statistics else 0

    @staticmethod
    def generator(index: int) -> Generator:
        """Of the noise of a draw."""
        return Generator().manual_seed(index)

    def at(self, index: int) -> dict[str, Tensor]:
        """The statistics of a draw, by name."""
        return {name: values[index] for name, values in self.statistics.items()}

    def keep(self, found: Sequence[Mapping[str, Tensor]]) -> None:
        """Those of all draws."""
        self.statistics = {name: torch.stack([each[name] for each in found]) for name in self.slots}

    def forget(self) -> None:
        """The posterior has changed."""
        self.statistics = {}

    def now(self) -> dict[str, Tensor]:
        """What the network has."""
        return {name: slots[0].get().detach().clone() for name, slots in self.slots.items()}

    def move(self, to: Callable[[Tensor], Tensor]) -> None:
        """As `nn.Module.to` moves buffers."""
        self.statistics = {name: to(values) for name, values in self.statistics.items()}

    def tensors(self) -> dict[str, Tensor]:
        """For files of a model; a checkpoint has none, the end of a run finds them again."""
        return {KEY + name: values for name, values in self.statistics.items()}

    def take(self, tensors: Mapping[str, Any]) -> None:
        """What `tensors` gave."""
        stored = {name.removeprefix(KEY): rows for name, rows in tensors.items() if name.startswith(KEY)}
        if not stored:
            return
        sizes = {len(rows) for rows in stored.values()}
        shapes = {name: slots[0].get().shape for name, slots in self.slots.items()}
        if sizes != {self.num} or {name: rows.shape[1:] for name, rows in stored.items()} != shapes:
            raise ValueError(f"the statistics of {sorted(sizes)} draws do not fit {self.num} of this network")
        like = self.now()
        self.statistics = {
            name: torch.stack([rows[i] for i in range(self.num)]).to(like[name])
            for name, rows in stored.items()
        }
