"""Refusing activation checkpointing inside a network, which recomputes after the draw was taken out."""

from typing import Any

import torch
from torch import nn

from bayesify import torch_internals as internals
from bayesify.weights.observing.watch import inside_checkpoint

REFUSAL = (
    "activation checkpointing inside the network recomputes it during backward, when the drawn weights are "
    "no longer in place, and would give wrong gradients. Switch it off in the network "
    "(for transformers: net.gradient_checkpointing_disable()), or checkpoint the whole call instead: "
    "torch.utils.checkpoint.checkpoint(model, x, target=y, use_reentrant=False)"
)


class CheckpointGuard:
    """A forward pre-hook on the layers with random weights: raises when one runs inside backward
    while no draw is in place."""

    def __init__(self) -> None:
        self.active = False  # is a draw in place now?

    def __call__(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or self.active:
            return
        if _inside_backward():
            raise RuntimeError(REFUSAL)

    def watch(self, net: nn.Module, names: list[str]) -> None:
        """Guard every module of `net` that holds one of the parameters `names`, itself or in a child."""
        paths = {name.rpartition(".")[0] for name in names}
        holders = {path[:i] for path in paths for i in _prefix_ends(path)}
        for path in sorted(holders):
            net.get_submodule(path).register_forward_pre_hook(self)


def _inside_backward() -> bool:
    task = internals.current_graph_task_id
    return task() != -1 if task else inside_checkpoint()


def _prefix_ends(path: str) -> list[int]:
    """Where the ancestors of a module path end: 'a.b' -> 'a', 'a.b' and the root ''."""
    return [0, *(i for i, c in enumerate(path) if c == "."), len(path)]


def without_guards(net: nn.Module) -> nn.Module:
    """`net` with all guards taken off (for plain copies handed to users)."""
    for module in net.modules():
        for key, hook in list(module._forward_pre_hooks.items()):
            if isinstance(hook, CheckpointGuard):
                del module._forward_pre_hooks[key]
    return net
