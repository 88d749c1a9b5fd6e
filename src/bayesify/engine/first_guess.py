"""Where a regression begins: units, learned noise and output bias, by what the first batches say of the targets."""

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
from bayesify.likelihoods.shapes import NEAR, TINY, means_of, std_of
from bayesify.model import BayesianModule
from bayesify.predict.prediction import evaluating
from bayesify.torch_internals import pytree
from bayesify.weights import as_arguments
from bayesify.weights.calls import is_sharded
from bayesify.weights.observing.origins import execution_order
from bayesify.weights.units import NAME as UNITS
from bayesify.weights.units import set_units
from bayesify.weights.where import kind_of

BATCHES = 20
USUAL = (1 / 30, 300)  # stds of targets that networks reach by the usual steps, under the usual priors


@torch.no_grad()
def first_guess(
    model: BayesianModule, loader: Iterable[Any], fabric: Any = None, trains: bool = True
) -> str | None:
    """What a regression takes from the data before its first step; returns what was done, None for nothing.

    Networks that are no better than the mean of the targets return theirs from then on in units of the targets
    (`weights.units`), where these are far from standardised; not beside a noise std that was given, since a prior
    then means what it says of the network's own weights. Then a likelihood that is left to the data starts its
    noise, and the output bias is moved by the mean error where that exceeds the std of the targets.

    Networks run at the centres of their weights; every process goes by the first one's batches.
    """
    real = model.likelihood.task == "regression" and not model.likelihood.is_discrete
    if not real or is_sharded(model.net) or isinstance(loader, Iterator):
        return None  # an iterator has no batch twice
    starts, model.likelihood.from_data = model.likelihood.from_data, False
    outputs, target, first = _seen(model, loader, fabric)
    if not outputs or not all(leaf.isfinite().all() for leaf in pytree.tree_leaves((outputs, target))):
        return None  # which training names
    mean, std = means_of(target), std_of(target)
    named = f"{float(mean.mean()):.4g} ± {std:.4g}"
    poor = all(_error(model, output, target) >= 0.99 * std for output in outputs)
    open_noise = starts or bool(model.likelihood.learned) or model.likelihood.takes_heads
    said = _in_units(model, outputs[0], mean, std) if trains and poor and open_noise else None
    if said:
        outputs, target, first = _seen(model, loader, fabric)
    if fabric is None or fabric.is_global_zero:
        _warn_of_units(model, named, std, poor and not said)
    if starts:
        before, moved = [p.clone() for p in model.likelihood.parameters()], []
        for member, output in enumerate(outputs if isinstance(outputs[0], Tensor) else ()):
            lack = model.likelihood.start(output, target)
            moved.append(lack is not None and _moved(model, member, first, lack))
        if any(moved) or not all(map(torch.equal, before, model.likelihood.parameters())):
            bias = "is moved by the mean error" if any(moved) else "stays"
            said = f"{f'{said}; ' if said else ''}the noise std starts from them, the output bias {bias}"
    return said and f"targets are {named}: {said}"


def _in_units(model: BayesianModule, output: Any, mean: Tensor, std: float) -> str | None:
    """Let networks learn (y − mean) / std where that is something else than y, and their output has such a map."""
    standard = 1 / NEAR <= std <= NEAR and float(mean.abs().max()) <= NEAR * std
    known: Any = getattr(model.net, UNITS, None)  # of other targets
    if std <= TINY or (standard and known is None) or model.output is not None:
        return None
    rows = model.likelihood.units(output, mean, std)
    if rows is None or (known is not None and torch.equal(rows.to(known), known)):
        return None
    set_units(model.posterior.nets(model.net), rows)
    return "the network learns (y - mean) / std, and what it returns is in their units"


def _error(model: BayesianModule, output: Any, target: Tensor) -> float:
    """Root mean square."""
    return float((model.likelihood.summarize(output)[0].double() - target.double()).square().mean().sqrt())


def _warn_of_units(model: BayesianModule, named: str, std: float, lost: bool) -> None:
    """Say where a network is not made for targets of this size, or noise that nobody chose is not."""
    known, options = f"targets are {named}", model.likelihood.options
    if lost and std > TINY and not USUAL[0] < std < USUAL[1]:
        mean = named.partition(" ")[0]
        warnings.warn(
            f"{known}: learning rates and priors are made for a std near 1, and beside a noise std that is given, an "
            f"output= or a likelihood without units outputs are not rescaled, so a network may learn no more than the "
            f"mean of these. Train it on (y - {mean}) / {std:.4g}, and scale its predictions back",
            stacklevel=4,
        )
    elif model.posterior.finds_noise:
        return
    elif options.get("learn_std") is False and options["std"] == 1 and std > 10:
        warnings.warn(
            f"{known}, and the noise std is 1 and stays there: intervals will be far too narrow. Use "
            f"likelihood='normal', which learns it, or give its std in the units of the targets",
            stacklevel=4,
        )


def _seen(model: BayesianModule, loader: Iterable[Any], fabric: Any) -> tuple[list[Any], Tensor, Any]:
    """The outputs of every network for the first batches, their targets, and one input."""
    with untouched(model), own_randomness(loader, 0, 0), evaluating(model):
        outputs, target, first = _of_batches(model, loader)
    if fabric is not None and fabric.world_size > 1:
        outputs, target = fabric.broadcast((outputs, target), src=0)
    return outputs, target, first


def _of_batches(model: BayesianModule, loader: Iterable[Any]) -> tuple[list[Any], Tensor, Any]:
    nets = model.posterior.nets(model.net)
    outputs: list[list[Any]] = [[] for _ in nets]
    targets: list[Tensor] = []
    for batch in islice(iter(loader), BATCHES):
        args, kwargs = first = as_arguments(inputs_for(model, batch))
        for net, found in zip(nets, outputs, strict=True):
            found.append(model.pick(net(*args, **kwargs)))
        if not all(isinstance(leaf, Tensor) for found in outputs for leaf in pytree.tree_leaves(found[-1])):
            break
        y = as_tensor(target_of(batch), "target", next(model.parameters()))
        device = pytree.tree_leaves(outputs[0][-1])[0].device
        targets.append(model.likelihood.check(outputs[0][-1], y.to(device), values=False))
    else:
        if targets:
            return [_joined(found) for found in outputs], torch.cat(targets), first
    return [], torch.zeros(()), None


def _joined(batches: list[Any]) -> Any:
    """Outputs of several batches as one, head by head."""
    return (
        torch.cat(batches)
        if isinstance(batches[0], Tensor)
        else tuple(map(torch.cat, zip(*batches, strict=True)))
    )


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
    lack = lack / (getattr(net, UNITS)[0, 1] if hasattr(net, UNITS) else 1.0)
    channels = lack.dim() > 2 and kind_of(net.get_submodule(layer)) == "conv"
    rows = lack.movedim(1, -1) if channels else lack if lack.dim() > 1 else lack[:, None]
    if rows.shape[-1] != bias.numel():
        return False
    by = rows.flatten(0, -2).mean(0).to(bias.dtype).view(bias.shape)
    return model.posterior.shift(net, f"{layer}.bias".lstrip("."), by, member)
