"""−log p(w) of many tensors at once."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesify import torch_internals as internals
from bayesify.divergences.components import carry_squares
from bayesify.divergences.multi_tensor import by_value
from bayesify.execution import compiling, transformed
from bayesify.laws.features import power
from bayesify.posteriors.prior_means import PriorMeans
from bayesify.priors import Prior
from bayesify.weights import Call, call_with
from bayesify.weights.calls import Slots, is_sharded


class Energy:
    """−Σ_j log p_j(w_j), a scalar.

    Tensors with the same quadratic log-density (normal priors) are taken together, in a few kernels whatever
    their number.
    """

    def __init__(self, priors: Mapping[str, Prior], slots: Slots, means: PriorMeans) -> None:
        self.slots, self.means = slots, means
        _check_widths(priors)
        standard = by_value({name: prior.standard for name, prior in priors.items()})
        self.groups = [(prior, _quadratic(prior), names) for prior, names in standard.items()]
        centred = all(terms is not None and terms[1] == 0 for _, terms, _ in self.groups)  # normal, around 0
        self.can_carry = centred and not means and not any(each[0].stray for each in slots.values())

    def __call__(self, weights: Mapping[str, Tensor]) -> Tensor:
        plain = not transformed()
        weights = self.means.differences(weights)
        parts: list[Tensor] = []
        for prior, terms, names in self.groups:
            tensors = [weights[name] for name in names]
            if plain and terms is not None:
                constant, linear, square = terms
                count = sum(w.numel() for w in tensors)
                parts.append(_Quadratic.apply(linear, square, *tensors) - constant * count)
            else:
                parts += [-prior.tensor_log_prob(w, w.dim()) for w in tensors]
        summed = torch.stack(
            [part.to(torch.promote_types(part.dtype, torch.float32)) for part in parts]
        ).sum()
        return summed + self.means.log_widths()

    def now(self) -> Tensor:
        """That of the weights in place."""
        return self({name: slots[0].get() for name, slots in self.slots.items()})

    def run(self, net: nn.Module, call: Call) -> tuple[Tensor, Any]:
        """The energy of the weights in place, and what the network returns.

        Compiled code would take the sum of every tensor and add every gradient in kernels of their own. There the
        network runs with the tensors that `carry_squares` gives back, whose gradients are added in one go.
        """
        if not (self.can_carry and compiling()) or is_sharded(net):
            return self.now(), net(*call.args, **call.kwargs)
        parts: list[Tensor] = []
        again: dict[str, Tensor] = {}
        for _, terms, names in self.groups:
            constant, _, square = terms  # type: ignore[misc]
            tensors = [self.slots[name][0].get() for name in names]
            total, carried = carry_squares(tensors, [1.0] * len(tensors))
            parts.append(-square * total - constant * sum(w.numel() for w in tensors))
            again |= dict(zip(names, carried, strict=True))
        output = call_with(net, self.slots, lambda names: again, call)
        return torch.stack(parts).sum(), output


def _check_widths(priors: Mapping[str, Prior]) -> None:
    for name, prior in priors.items():
        if prior.is_empirical:
            raise ValueError(
                f"prior std='empirical' of {name!r} is for variational posteriors: a point or a chain has no widths, "
                f"and the density of the best std grows without bound as weights go to 0. Give it a number"
            )


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
        norms = torch.stack(internals.foreach_norm([t.detach() for t in tensors])).float()
        total = -square * norms.square().sum()
        if linear:
            total = total - linear * torch.stack([t.sum() for t in tensors]).sum()
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        linear, square = ctx.factors
        factor = -2 * square * gradient.to(ctx.saved_tensors[0].dtype)
        gradients = internals.foreach_mul(ctx.saved_tensors, factor)
        if linear:
            gradients = internals.foreach_sub(gradients, (linear * gradient).item())
        return None, None, *gradients
