"""The negative ELBO per example: the loop over members and draws, and all scaling by the size of the data set."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bayesify.batches import PerMember, for_members
from bayesify.checks import NonFiniteLossError, check_whole
from bayesify.execution import can_read_values
from bayesify.weights import Call

#: (likelihood, output, target, sample_weight, values) -> mean negative log-likelihood per example
DataTerm = Callable[..., Tensor]


class Loss(NamedTuple):
    """The named parts of a loss.

    nll: mean per example.  kl: of the whole posterior.  total = nll + kl_weight · kl / num_data; nll alone where the
    method's optimiser adds the rest.
    """

    nll: Tensor
    kl: Tensor
    total: Tensor


def elbo(nll: Tensor, kl: Tensor, num_data: int, kl_weight: Any = 1.0, penalty: bool = False) -> Loss:
    """−ELBO / N = mean_i −log p(y_i | x_i, w) + kl_weight · KL(q ‖ p) / N, with N = num_data.

    penalty: `kl` is a term of the mean loss already, and is not divided by N
    """
    return Loss(nll, kl, nll + kl_weight * kl / (1 if penalty else num_data))


def nll_of(model: Any) -> Callable[..., Tensor]:
    """(output, target, sample_weight, values) -> mean negative log-likelihood per example of one pass."""
    return model.likelihood.nll if model.data_term is None else partial(model.data_term, model.likelihood)


def negative_elbo(
    model: Any,
    call: Call | PerMember,
    target: Tensor | PerMember,
    num_draws: int = 1,
    sample_weight: Tensor | None = None,
    outputs: list[Any] | None = None,
) -> Loss:
    """−ELBO / N of a model on one batch, or on one for every member: nll is the mean over members and `num_draws`
    passes of each, kl that over members. `outputs` gets what each pass predicts."""
    if model.num_data is None and model.method.needs_num_data:
        raise ValueError(
            "num_data is missing: the KL is scaled by the number of training examples. "
            "Give bayesify(..., num_data=len(train_set)) or set model.num_data"
        )
    check_whole(num_draws, "num_draws", 1)
    values = can_read_values()
    posterior = model.posterior
    nlls: list[Tensor] = []
    kl_terms: list[Tensor] = []
    members = len(posterior.nets(model.net))
    calls, targets = for_members(call, members), for_members(target, members)
    for member in range(members):
        for i in range(num_draws):
            output = model.pick(posterior.run(model.net, calls[member], member, kl_terms if i == 0 else None))
            nlls.append(nll_of(model)(output, targets[member], sample_weight, values))
            if outputs is not None:
                outputs.append(output)
    nll = nlls[0] if len(nlls) == 1 else torch.stack(nlls).mean()
    kl = kl_terms[0] if len(kl_terms) == 1 else torch.stack(kl_terms).sum() / members
    if model.method.optimizer_adds_kl:
        loss = Loss(nll, kl.detach(), nll)
    else:
        loss = elbo(nll, kl, model.num_data or 1, model.kl_weight, posterior.penalty)
    if values and not torch.isfinite(loss.total.detach()).item():
        raise not_finite(loss, calls, model)
    return loss


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
