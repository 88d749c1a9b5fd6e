"""Predictions in eval mode, whatever mode the model is in, and without its cautions."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from bayesify import torch_internals as internals


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode, and every module's own mode again afterwards."""
    training = _training(model)
    if any(type(module).train is not nn.Module.train for module in training):
        model.eval()
    else:
        _set_training(training, False)
    try:
        yield
    finally:
        _set_training(training, True)


@contextmanager
def uncautioned(model: Any) -> Iterator[None]:
    """Predictions of a model that is still in training are known not to be those of its end."""
    before, model.cautioned = model.cautioned, True
    try:
        yield
    finally:
        model.cautioned = before


def _training(module: nn.Module) -> list[nn.Module]:
    """The modules inside that are in training mode. Called in every prediction: `Module.modules`, `Module.eval` and
    setting attributes would take as long as a whole prediction of a small network."""
    seen: dict[nn.Module, None] = {}
    waiting = [module]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen[module] = None
            waiting += [child for child in module._modules.values() if child is not None]
    return [module for module in seen if module.training]


def _set_training(modules: list[nn.Module], mode: bool) -> None:
    for module in modules:
        if isinstance(module, internals.ScriptModule):
            module.training = mode  # compiled code keeps its own attributes
        else:
            vars(module)["training"] = mode
