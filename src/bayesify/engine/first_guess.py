"""Where the learned noise and the output bias of a regression begin: at what the first batches say of the targets."""

import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.batches import inputs_for, target_of
from bayesify.checks import as_tensor
from bayesify.engine.averaging import own_randomness
from bayesify.engine.randomness import untouched
from bayesify.likelihoods.shapes import TINY, std_of
from bayesify.model import BayesianModule
from bayesify.predict.prediction import evaluating
from bayesify.weights import as_arguments
from bayesify.weights.calls import is_sharded
from bayesify.weights.observing.origins import execution_order
from bayesify.weights.where import kind_of

BATCHES = 20
USUAL = (1 / 30, 300)  # stds of targets that networks reach by the usual steps, under the usual priors


@torch.no_grad()
def first_guess(model: BayesianModule, loader: Iterable[Any], fabric: Any = None) -> str | None:
    """Start a likelihood that is left to the data, and move the output bias of every network by the mean error, where
    the error exceeds the std of the targets; returns what was done, None for nothing.

    Networks run at the centres of their weights; every process goes by the first one's batches.
    """
    real = model.likelihood.task == "regression" and not model.likelihood.is_discrete
    if not real or is_sharded(model.net) or isinstance(loader, Iterator):
        return None  # an iterator has no batch twice
    starts, model.likelihood.from_data = model.likelihood.from_data, False
    with untouched(model), own_randomness(loader, 0, 0), evaluating(model):
        outputs, target, first = _seen(model, loader)
    if fabric is not None and fabric.world_size > 1:
        outputs, target = fabric.broadcast((outputs, target), src=0)
    if not outputs or not all(found.isfinite().all() for found in (*outputs, target)):  # which training names
        return None
    if fabric is None or fabric.is_global_zero:
        _warn_of_units(model, target)
    if not starts:
        return None
    before, moved = [p.clone() for p in model.likelihood.parameters()], []
    for member, output in enumerate(outputs):
        lack = model.likelihood.start(output, target)
        moved.append(lack is not None and _moved(model, member, first, lack))
    if not any(moved) and all(map(torch.equal, before, model.likelihood.parameters())):
        return None  # near enough
    mean, std = float(target.double().mean()), std_of(target)
    bias = "is moved by the mean error" if any(moved) else "stays"
    return f"targets are {mean:.4g} ± {std:.4g}: the noise std starts from them, the output bias {bias}"


def _warn_of_units(model: BayesianModule, target: Tensor) -> None:
    """Say where a network is not made for targets of this size, or noise that nobody chose is not."""
    mean, std, options = float(target.double().mean()), std_of(target), model.likelihood.options
    known = f"targets are {mean:.4g} ± {std:.4g}"
    if std > TINY and not USUAL[0] < std < USUAL[1]:
        warnings.warn(
            f"{known}: learning rates and priors are made for a std near 1, and a network may learn no more than the "
            f"mean of these. Train it on (y - {mean:.4g}) / {std:.4g}, and scale its predictions back",
            stacklevel=4,
        )
    elif model.posterior.finds_noise:
        return
    elif options.get("learn_std") is False and options["std"] == 1 and std > 10:
        warnings.warn(
            f"{known}, and the noise std is 1, its default, and stays there: intervals will be far too narrow. Use "
            f"bf.likelihood('normal', learn_std=True), or give its std in the units of the targets",
            stacklevel=4,
        )


def _seen(model: BayesianModule, loader: Iterable[Any]) -> tuple[list[Tensor], Tensor, Any]:
    """The outputs of every network for the first batches, their targets, and one input."""
    nets = model.posterior.nets(model.net)
    outputs: list[list[Any]] = [[] for _ in nets]
    targets: list[Tensor] = []
    for batch in islice(iter(loader), BATCHES):
        args, kwargs = first = as_arguments(inputs_for(model, batch))
        for net, found in zip(nets, outputs, strict=True):
            found.append(model.pick(net(*args, **kwargs)))
        if not all(isinstance(found[-1], Tensor) for found in outputs):
            break
        y = as_tensor(target_of(batch), "target", next(model.parameters()))
        targets.append(model.likelihood.check(outputs[0][-1], y.to(outputs[0][-1].device), values=False))
    else:
        if targets:
            return [torch.cat(found) for found in outputs], torch.cat(targets), first
    return [], torch.zeros(()), None


def _moved(model: BayesianModule, member: int, call: Any, lack: Tensor) -> bool:
    """Was the bias of the one layer that the prediction comes from moved by the mean of what it lacks?"""
    net = model.posterior.nets(model.net)[member]
    args, kwargs = call
    with untouched(model):
        _, last = execution_order(net, args, kwargs, model.pick)
    layer = last.pop() if len(last) == 1 else None
    bias = None if layer is None else getattr(net.get_submodule(layer), "bias", None)
    if layer is None or not isinstance(bias, nn.Parameter) or not bias.requires_grad:
        return False
    channels = lack.dim() > 2 and kind_of(net.get_submodule(layer)) == "conv"
    rows = lack.movedim(1, -1) if channels else lack if lack.dim() > 1 else lack[:, None]
    if rows.shape[-1] != bias.numel():
        return False
    by = rows.flatten(0, -2).mean(0).to(bias.dtype).view(bias.shape)
    return model.posterior.shift(net, f"{layer}.bias".lstrip("."), by, member)
