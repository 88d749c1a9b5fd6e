"""KL of a mixture of K narrow normals around centroids M_k to a normal prior (paper 2, eq. 2 and 6, corrected).

Isotropic prior of precision τ, components N(M_k, σ²) of probability p_k that do not overlap, D entries:

    KL ≈ Σ_k (τ p_k / 2) ‖M_k‖²  +  (D/2) (τσ² − 1 − log τσ²)  −  H(z),     H(z) = −Σ_k p_k log p_k

with one H(z) for every independent assignment z. The first term alone has a gradient when σ and p are fixed.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from bayesify import torch_internals as internals
from bayesify.divergences.multi_tensor import by_value, norms
from bayesify.execution import compiling, inside_functorch, transformed
from bayesify.families.variance import wide


def weighted_squares(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Σ_j c_j ‖w_j‖² over many tensors: a scalar with gradients, in few kernels."""
    if not tensors:
        return torch.zeros(())
    if transformed():
        terms = [c * wide(w).square().sum() for c, w in zip(weights, tensors, strict=True)]
        return torch.stack(terms).sum()
    return _WeightedSquares.apply(tuple(weights), *tensors)


def carry_squares(tensors: Sequence[Tensor], weights: Sequence[float]) -> tuple[Tensor, list[Tensor]]:
    """`weighted_squares`, and the tensors again for use in the network.

    What the network and the squares send back to a tensor meets in one node, which adds it for all tensors at once.
    """
    if not tensors or inside_functorch():
        return weighted_squares(tensors, weights), list(tensors)
    total, *again = _CarrySquares.apply(tuple(weights), *tensors)
    return total, again


def _sum_of_squares(weights: Sequence[float], tensors: Sequence[Tensor]) -> Tensor:
    terms = []
    for weight, places in by_value(dict(enumerate(weights))).items():
        group = [tensors[i] for i in places]
        each = torch.ops.bayesify.norms(group) if compiling() else norms(group)
        terms.append(weight * each.square().sum())
    return torch.stack(terms).sum()


# an operator, because Inductor would make a reduction or two for every tensor; defined by its schema, because every
# call of a `custom_op` takes the processor a tenth of a millisecond more
torch.library.define(
    "bayesify::norms",
    "(Tensor[] tensors) -> Tensor",
    tags=(torch.Tag.flexible_layout,),  # takes convolution weights in the compiler's order, without a copy
)
torch.library.impl("bayesify::norms", "CompositeExplicitAutograd", norms)


@torch.library.register_fake("bayesify::norms")
def _(tensors: list[Tensor]) -> Tensor:
    return tensors[0].new_empty(len(tensors), dtype=torch.promote_types(tensors[0].dtype, torch.float32))


def _gradients(weights: Sequence[float], tensors: Sequence[Tensor], grad: Tensor) -> list[Tensor]:
    """2 c_j w_j, times what came back; tensors of equal weight share their kernels."""
    result: dict[int, Tensor] = {}
    for weight, places in by_value(dict(enumerate(weights))).items():
        scaled = internals.foreach_mul([tensors[i] for i in places], 2 * weight * grad)
        result |= dict(zip(places, scaled, strict=True))
    return [result[i] for i in range(len(tensors))]


class _WeightedSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: tuple[float, ...], *tensors: Tensor) -> Tensor:
        ctx.weights = weights
        ctx.save_for_backward(*tensors)
        return _sum_of_squares(weights, tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return (None, *_gradients(ctx.weights, ctx.saved_tensors, grad))


class _CarrySquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: tuple[float, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.weights = weights
        ctx.save_for_backward(*tensors)
        return (_sum_of_squares(weights, tensors), *(w.view_as(w) for w in tensors))

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *grads: Tensor) -> tuple[Any, ...]:
        own = _gradients(ctx.weights, ctx.saved_tensors, grad)
        internals.foreach_add_(own, grads)
        return (None, *own)


def categorical_entropy(probs: Tensor) -> Tensor:
    """H(z) = −Σ_k p_k log p_k."""
    return torch.special.entr(probs).sum()


def narrow_normal(numel: int, precision: float, std: float | Tensor) -> float | Tensor:
    """(D/2)(τσ² − 1 − log τσ²): what a normal of width σ adds to the KL beside its squared mean."""
    scaled = precision * std**2
    log = scaled.log() if isinstance(scaled, Tensor) else math.log(scaled)
    return numel / 2 * (scaled - 1 - log)


class Mixture(NamedTuple):
    """One tensor under a mixture: its centroids, the shape of its assignments, its width and its prior."""

    centroids: Tensor  # (K, *shape)
    z_shape: tuple[int, ...]  # as many dimensions as the tensor, each its size or 1
    std: float | Tensor
    precision: float


def monte_carlo(
    mixtures: Sequence[Mixture], probs: Tensor, num_draws: int, generator: Generator | None = None
) -> Tensor:
    """KL of the true mixture, components overlapping or not: mean of log q(w) − log p(w) over draws of w.

    The tensors in `mixtures` share their assignments z (a layer's weight and bias do in EMP).
    """
    count = math.prod(mixtures[0].z_shape)
    u = torch.rand(num_draws, count, dtype=probs.dtype, device=probs.device, generator=generator)
    z = (u[..., None] >= probs.cumsum(0)[:-1]).sum(-1)  # (draws, assignments)
    log_components = probs.log()[:, None, None]  # (K, draws, assignments)
    log_prior = torch.zeros((), dtype=probs.dtype, device=probs.device)
    for m in mixtures:
        dims = [d + 2 for d, size in enumerate(m.z_shape) if size == 1]
        chosen = torch.zeros(num_draws, *m.centroids.shape[1:], dtype=probs.dtype, device=probs.device)
        for k, centroid in enumerate(m.centroids):
            chosen = torch.where((z == k).view(num_draws, *m.z_shape), centroid, chosen)
        noise = torch.empty_like(chosen).normal_(generator=generator)
        w = chosen + m.std * noise  # (draws, *shape)
        density = torch.distributions.Normal(m.centroids[:, None], m.std).log_prob(w)  # (K, draws, *shape)
        summed = density.sum(dims, keepdim=True) if dims else density
        log_components = log_components + summed.reshape(len(m.centroids), num_draws, count)
        prior = torch.distributions.Normal(torch.zeros_like(w), m.precision**-0.5)
        log_prior = log_prior + prior.log_prob(w).flatten(1).sum(1)  # (draws,)
    log_q = log_components.logsumexp(0).sum(-1)  # (draws,)
    return (log_q - log_prior).mean()
