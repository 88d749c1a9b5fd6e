"""Checks of what a user hands in; each error names the argument, the value and the remedy."""

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from bayesify import torch_internals as internals
from bayesify.families import inside_functorch


def check_network(net: Any, wrapped: Iterable[nn.Module]) -> None:
    """`net` can be made Bayesian: a module, initialised, on one device, not wrapped already."""
    if not isinstance(net, nn.Module):
        raise TypeError(f"net={type(net).__name__} must be an nn.Module")
    if isinstance(net, internals.ScriptModule):
        raise TypeError(
            "net is a TorchScript module, whose parameters cannot be swapped: give the original module"
        )
    mine = {
        m for m in net.modules() if any(True for _ in m.parameters())
    }  # others may be shared, as nn.ReLU() is
    for other in wrapped:
        if net is other or not mine.isdisjoint(other.modules()):
            raise ValueError(
                "net (or a part of it) is already bayesified: use the model you have, or copy.deepcopy(net)"
            )
    for name, parameter in net.named_parameters():
        if is_lazy(parameter):
            raise ValueError(
                f"parameter {name!r} is not initialised yet (a lazy module): run one batch first"
            )
    devices: dict[str, str] = {}
    for name, parameter in net.named_parameters():
        devices.setdefault(str(parameter.device), name)
    if len(devices) > 1:
        where = ", ".join(f"{name} on {device}" for device, name in devices.items())
        raise ValueError(f"net is spread over several devices ({where}): move it to one with net.to(device)")


def check_num_data(num_data: Any) -> None:
    if isinstance(num_data, bool) or not isinstance(num_data, int) or num_data <= 0:
        raise ValueError(
            f"num_data={num_data!r} must be a positive whole number: the number of training examples"
        )


class NonFiniteError(RuntimeError):
    """A run met a loss, gradient, weight or momentum that is NaN or infinite; the last checkpoint is good."""


class NonFiniteLossError(ValueError):
    """A loss that is NaN or infinite; the message says where it comes from."""


def check_whole(value: Any, argument: str, least: int) -> None:
    """`value` must be a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        example = max(least, 5)
        raise ValueError(
            f"{argument}={value!r} must be a whole number of at least {least}, e.g. {argument}={example}"
        )


def check_not_negative(value: Any, argument: str) -> None:
    """`value` must be a number, 0 or larger, and finite."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{argument}={value!r} must be a number, 0 or larger, e.g. {argument}=0.1")


def can_read_values() -> bool:
    """May a check look into tensors? Not in compiled or vmapped code, nor while a CUDA graph is recorded."""
    return not (
        torch.compiler.is_compiling()
        or inside_functorch()
        or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
    )


def check_finite_loss(loss: Any, call: Any, model: Any) -> None:
    """Raise when the loss is not finite, naming where it comes from: the batch, the chain, a parameter or the
    network."""
    if torch.isfinite(loss.total.detach()).item():
        return
    for key, value in [*enumerate(call.args), *call.kwargs.items()]:
        if isinstance(value, Tensor) and value.is_floating_point() and not torch.isfinite(value).all():
            raise NonFiniteLossError(
                f"the batch holds NaN or infinite values (input {key!r}, shape {tuple(value.shape)})"
            )
    parts = f"(nll={loss.nll.item():g}, kl={loss.kl.item():g})"
    diverged = model.posterior.diverged(f"the loss is not finite {parts}")
    if diverged is not None:
        raise NonFiniteLossError(diverged)
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise NonFiniteLossError(
                f"parameter {name!r} holds NaN or infinite values: the last optimiser step diverged "
                f"(lower the learning rate, clip gradients, or load an earlier checkpoint)"
            )
    if torch.isfinite(loss.nll).item() and torch.isinf(loss.kl).item():
        raise NonFiniteLossError(
            f"the loss is not finite {parts}: the prior gives some of the weights no probability. They are far too "
            f"large (lower the learning rate), or it is one of positive weights, as 'gamma' (choose another prior)"
        )
    raise NonFiniteLossError(
        f"the loss is not finite {parts} although inputs and parameters are: "
        f"the network itself overflows (lower the learning rate or use float32)"
    )
