"""Noticing a loss or gradient that is not finite before the optimiser takes it."""

import math
from typing import Any

import torch
from torch import Tensor, nn


class NonFiniteError(RuntimeError):
    """Training met a loss or gradient that is NaN or infinite; the last checkpoint is good."""


class FiniteCheck:
    """Looks at every step's loss and gradients.

    On a CPU the answer is read at once. On an accelerator reading it would stall the queue, so a fused
    optimiser is told to skip the bad step on the device itself (`found_inf`), and the answers of several
    steps are read together; other optimisers are asked at once.
    """

    READ_EVERY = 20

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, fabric: Any) -> None:
        self.model = model
        self.fabric = fabric
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer: Any = optimizer
        self.lazy = next(model.parameters()).is_cuda and getattr(
            optimizer, "_step_supports_amp_scaling", False
        )
        self.bad: Tensor | None = None  # steps that were skipped since the last reading
        self.steps = 0

    def before_step(self, total: Tensor) -> None:
        """Call after backward, before the optimiser's step."""
        bad = torch.zeros((), device=total.device)
        one = torch.ones((), device=total.device)
        for same_type in self._gradients():
            if (
                same_type[0].dtype == torch.bfloat16
            ):  # no such kernel on a GPU; ‖g‖∞ is NaN or infinite where one is
                norms = torch.stack(torch._foreach_norm(same_type, math.inf))
                bad = bad + (norms - norms).sum().float()
            else:  # one kernel: sets `bad` where a gradient is not finite
                torch._amp_foreach_non_finite_check_and_unscale_(same_type, bad, one)
        bad = bad + (total.detach() - total.detach())  # NaN where the loss is not finite
        if self.fabric.world_size > 1:  # shards and batches differ: all ranks stop or none
            bad = self.fabric.all_reduce(bad.ne(0).float(), reduce_op="max")
        if not self.lazy:
            if bad.item() != 0:
                self._raise(total)
            return
        self.optimizer.grad_scale, self.optimizer.found_inf = None, bad.ne(0).float()
        self.bad = bad if self.bad is None else self.bad + bad
        self.steps += 1
        if self.steps % self.READ_EVERY == 0:
            self.read(total)

    def _gradients(self) -> list[list[Tensor]]:
        """The gradients, in lists of one dtype."""
        lists: dict[torch.dtype, list[Tensor]] = {}
        for parameter in self.parameters:
            if parameter.grad is not None:
                lists.setdefault(parameter.grad.dtype, []).append(_local(parameter.grad))
        return list(lists.values())

    def read(self, total: Tensor | None = None) -> None:
        """Read the pending answers; raises when a step was bad."""
        if self.bad is not None and self.bad.item() != 0:
            self._raise(total)
        self.bad = None

    def _raise(self, total: Tensor | None) -> None:
        names = [
            name
            for name, p in self.model.named_parameters()
            if p.grad is not None and not _local(p.grad).isfinite().all()
        ]
        value = "?" if total is None else f"{total.detach().item():g}"
        where = f"; gradients are not finite in {', '.join(names[:3])}" if names else ""
        if len(names) > 3:
            where += f" and {len(names) - 3} more"
        raise NonFiniteError(
            f"the loss ({value}) or a gradient is not finite{where}. The optimiser step was not taken. "
            f"Lower the learning rate, clip gradients (clip_norm=1.0) or use precision='32-true'"
        )


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor  # a DTensor's own shard
