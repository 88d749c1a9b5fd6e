"""Noticing a loss or gradient that is not finite before the optimiser takes it."""

from typing import Any

import torch
from torch import Tensor

from bayesify import torch_internals as internals
from bayesify.checks import NonFiniteError
from bayesify.files.differences import first_few


class FiniteCheck:
    """Looks at every step's loss and gradients.

    On a CPU the answer is read at once. On an accelerator reading it would stall the queue, so a fused
    optimiser is told to skip the bad step on the device itself (`found_inf`), and the answers of several
    steps are read together; other optimisers are asked at once.
    """

    READ_EVERY = 20

    def __init__(self, model: Any, optimizer: torch.optim.Optimizer, fabric: Any) -> None:
        self.model = model
        self.fabric = fabric
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer: Any = optimizer
        can_skip = getattr(optimizer, "_step_supports_amp_scaling", False)
        self.lazy = next(model.parameters()).is_cuda and can_skip
        # one number a step since the last reading: not 0 where it was skipped
        self.pending: list[Tensor] = []

    def before_step(self, total: Tensor) -> None:
        """Call after backward, before the optimiser's step."""
        bad = torch.zeros((), device=total.device)
        one = torch.ones((), device=total.device)
        for same_type in self._gradients():
            half = same_type[0].dtype == torch.bfloat16  # has no such kernel on a GPU
            check = internals.non_finite_by_norms if half else internals.non_finite_check
            check(same_type, bad, one)  # `bad` is not 0 where a gradient is not finite
        bad = bad + (total.detach() - total.detach())  # NaN where the loss is not finite
        if self.fabric.world_size > 1:  # shards and batches differ: all ranks stop or none
            bad = self.fabric.all_reduce(bad.ne(0).float(), reduce_op="max")
        if not self.lazy:
            if bad.item() != 0:
                self._raise(total, ago=0)
            return
        self.optimizer.grad_scale, self.optimizer.found_inf = None, bad.ne(0).float()
        self.pending.append(bad)
        if len(self.pending) == self.READ_EVERY:
            self._read(total, taken=len(self.pending) - 1)

    def _gradients(self) -> list[list[Tensor]]:
        """The gradients, in lists of one dtype."""
        lists: dict[torch.dtype, list[Tensor]] = {}
        for parameter in self.parameters:
            if parameter.grad is not None:
                lists.setdefault(parameter.grad.dtype, []).append(_local(parameter.grad))
        return list(lists.values())

    def read(self) -> None:
        """Read the pending answers and look at what the last step left; raises when a step was bad."""
        self._read(None, taken=len(self.pending))
        self.model.posterior.check_finite()

    def _read(self, total: Tensor | None, taken: int) -> None:
        """taken: steps of the pending ones that the optimiser has been asked for."""
        pending, self.pending = self.pending, []
        bad = torch.stack(pending).ne(0).tolist() if pending else []
        if True in bad:
            self._raise(total, ago=taken - bad.index(True))

    def _raise(self, total: Tensor | None, ago: int) -> None:
        gradients = {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}
        names = [name for name, grad in gradients.items() if not _local(grad).isfinite().all()]
        value = "?" if total is None else f"{total.detach().item():g}"
        where = f"; gradients are not finite in {first_few(names, 3)}" if names else ""
        trouble = f"the loss ({value}) or a gradient is not finite{where}"
        remedy = (
            ". The optimiser step was not taken. "
            "Lower the learning rate, clip gradients (clip_norm=1.0) or use precision='32-true'"
        )
        raise NonFiniteError(self.model.posterior.diverged(trouble, ago) or trouble + remedy)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor  # a DTensor's own shard
