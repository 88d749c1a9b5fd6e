"""Where a loss that is not finite comes from."""

from typing import Any

import torch
from torch import Tensor

from bayesify.checks import NonFiniteLossError
from bayesify.weights import Call


def not_finite(loss: Any, calls: list[Call], model: Any) -> NonFiniteLossError:
    """The error that names where a loss that is not finite comes from: the batch, the chain, a parameter or the
    network. It reads values."""
    for key, value in [pair for call in calls for pair in (*enumerate(call.args), *call.kwargs.items())]:
        if isinstance(value, Tensor) and value.is_floating_point() and not torch.isfinite(value).all():
            return NonFiniteLossError(
                f"the batch holds NaN or infinite values (input {key!r}, shape {tuple(value.shape)})"
            )
    parts = f"(nll={loss.nll.item():g}, kl={loss.kl.item():g})"
    diverged = model.posterior.diverged(f"the loss is not finite {parts}")
    if diverged is not None:
        return NonFiniteLossError(diverged)
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            return NonFiniteLossError(
                f"parameter {name!r} holds NaN or infinite values: the last optimiser step diverged "
                f"(lower the learning rate, clip gradients, or load an earlier checkpoint)"
            )
    if torch.isfinite(loss.nll).item() and torch.isinf(loss.kl).item():
        return NonFiniteLossError(
            f"the loss is not finite {parts}: the prior gives some of the weights no probability. They are far too "
            f"large (lower the learning rate), or it is one of positive weights, as 'gamma' (choose another prior)"
        )
    return NonFiniteLossError(
        f"the loss is not finite {parts} although inputs and parameters are: "
        f"the network itself overflows (lower the learning rate or use float32)"
    )
