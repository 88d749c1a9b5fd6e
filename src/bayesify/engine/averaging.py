"""An exponential moving average of the parameters, and statistics of batch norm that belong to it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from bayesify import torch_internals as internals
from bayesify.batches import inputs_for
from bayesify.engine.position import batches, order_generator
from bayesify.engine.randomness import random_state, restore_random_state, seed_everything
from bayesify.weights import as_call
from bayesify.weights.calls import is_sharded_unit

SETTLING = 100  # batches that statistics are taken from
SETTLING_DRAW = 8  # of every draw that has its own


class MovingAverage:
    """average ← decay · average + (1 − decay) · parameter, after every step; a slow start by step / (step + 10)."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.begin()

    def begin(self) -> None:
        """At the parameters as they are."""
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
        """The averaged parameters in the model for a while; what happens to its buffers meanwhile is undone."""
        trained = [p.detach().clone() for p in self.parameters]
        buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        self._write(self.average)
        try:
            yield
        finally:
            self._write(trained)
            for buffer, before in buffers:
                buffer.copy_(before)

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
            if stored.shape != mine.shape or not stored.isfinite().all():
                raise ValueError(f"an average is {tuple(stored.shape)}, or not finite")
            mine.copy_(stored)


@torch.no_grad()
def settle_statistics(
    model: Any, loader: Iterable[Any], epoch: int, fabric: Any, num_batches: int = SETTLING
) -> None:
    """Running statistics of batch norm by the weights as they are: the plain average over the first `num_batches`
    batches of an epoch, of every member and component by itself. Random states stay as they were, and so does the data
    order.

    An average over steps lags behind weights that move; those of averaged weights it never belonged to.
    """
    norms = [m for m in model.modules() if isinstance(m, internals.BatchNorm) and m.track_running_stats]
    if not norms:
        return
    before = [(m, m.momentum) for m in norms]
    modes = [(m, m.training) for m in model.modules()]
    counts = [b for name, b in model.named_buffers() if name.endswith("num_batches_tracked")]
    try:
        model.train()
        for norm in norms:
            norm.momentum = None  # the plain average over the batches counted
        for count in counts:
            count.zero_()
        with own_randomness(loader, epoch, fabric.global_rank), fabric.autocast():
            for batch in islice(batches(loader, epoch, 0), num_batches):
                _passes(model, inputs_for(model, batch))
        if fabric.world_size > 1:
            for name, buffer in model.named_buffers():
                if name.endswith(("running_mean", "running_var")):
                    buffer.copy_(fabric.all_reduce(buffer, reduce_op="mean"))
    finally:
        for norm, momentum in before:
            norm.momentum = momentum
        for module, mode in modes:
            module.training = mode


def _passes(model: Any, x: Any) -> None:
    """One pass of every member."""
    if is_sharded_unit(model):  # the weights exist only inside forward
        model(x)
        return
    for member in range(len(model.posterior.nets(model.net))):
        model.posterior.run(model.net, as_call(x), member)


@contextmanager
def own_randomness(loader: Any, epoch: int, rank: int) -> Iterator[None]:
    """The same random numbers whenever an epoch is gone through again, and no trace in any generator."""
    state, generator = random_state(), order_generator(loader)
    order = None if generator is None else generator.get_state()
    seed_everything(epoch, rank)
    if generator is not None:
        generator.manual_seed(epoch)
    try:
        yield
    finally:
        restore_random_state(*state)
        if generator is not None and order is not None:
            generator.set_state(order)
