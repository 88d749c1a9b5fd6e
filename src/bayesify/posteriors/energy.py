"""−log p(w) of many tensors at once."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bayesify.families import inside_functorch
from bayesify.features import power
from bayesify.priors import Prior


def energy(priors: Mapping[str, Prior], weights: Mapping[str, Tensor]) -> Tensor:
    """−Σ_j log p_j(w_j), a scalar.

    Tensors with the same quadratic log-density (normal priors) are taken together, in a few kernels whatever
    their number.
    """
    together: dict[Prior, list[Tensor]] = {}
    terms: list[Tensor] = []
    eager = (
        not torch.compiler.is_compiling() and not inside_functorch()
    )  # no vmap rule for multi-tensor kernels
    for name, w in weights.items():
        if eager and _quadratic(priors[name]) is not None:
            together.setdefault(priors[name], []).append(w)
        else:
            terms.append(-priors[name].tensor_log_prob(w, w.dim()))
    for prior, tensors in together.items():
        constant, linear, square = _quadratic(prior)  # type: ignore[misc]
        count = sum(w.numel() for w in tensors)
        terms.append(_Quadratic.apply(linear, square, *tensors) - constant * count)
    return torch.stack([term.float() if term.dtype != torch.float64 else term for term in terms]).sum()


def _quadratic(prior: Prior) -> tuple[float, float, float] | None:
    """(a, b, c) with log p(w) = a + b w + c w², elementwise; None for other priors."""
    terms = prior.terms()
    if terms is None or not set(terms.coefficients) <= {power(1), power(2)}:
        return None
    get = terms.coefficients.get
    return terms.constant, get(power(1), 0.0), get(power(2), 0.0)


class _Quadratic(torch.autograd.Function):
    """−Σ (b w + c w²) over a list of tensors, and its gradient −(b + 2 c w), by multi-tensor kernels."""

    @staticmethod
    def forward(ctx: Any, linear: float, square: float, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        ctx.factors = (linear, square)
        norms = torch.stack(torch._foreach_norm([t.detach() for t in tensors])).float()
        total = -square * norms.square().sum()
        if linear:
            total = total - linear * torch.stack([t.sum() for t in tensors]).sum()
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        linear, square = ctx.factors
        gradients = torch._foreach_mul(
            ctx.saved_tensors, -2 * square * gradient.to(ctx.saved_tensors[0].dtype)
        )
        if linear:
            gradients = torch._foreach_sub(gradients, (linear * gradient).item())
        return None, None, *gradients
