"""The curvature of −log p(y | output) by the output, of any likelihood, by autograd."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesify.torch_internals import pytree

MOST_OUTPUTS = 256  # numbers of an example's output whose dense Hessian is taken


def root_by_autograd(
    log_prob: Callable[[Any, Tensor], Tensor], output: Any, target: Tensor, columns: Tensor
) -> Tensor:
    """L ξ for columns ξ (columns, batch, numbers), L Lᵀ = ∇² −log p(y | output) without its negative part.

    log_prob:  (output, target) -> (batch,)
    """
    numbers = columns.shape[-1]
    if numbers > MOST_OUTPUTS:
        raise ValueError(
            f"the network returns {numbers} numbers for each example, and the curvature of this likelihood by them "
            f"is known as a dense matrix only, of at most {MOST_OUTPUTS}: use likelihood 'categorical', 'bernoulli' "
            f"or 'normal', or write curvature_root() for yours"
        )
    leaves, structure = pytree.tree_flatten(output)
    sizes = [leaf[0].numel() for leaf in leaves]
    joined = torch.cat([leaf.detach().flatten(1) for leaf in leaves], 1)  # (batch, numbers)

    def loss(one: Tensor, y: Tensor) -> Tensor:
        parts = zip(one.split(sizes), leaves, strict=True)
        heads = pytree.tree_unflatten([p.reshape(1, *leaf.shape[1:]) for p, leaf in parts], structure)
        return -log_prob(heads, y[None]).sum()

    with torch.enable_grad():
        hessian = torch.func.vmap(torch.func.hessian(loss))(joined, target)  # (batch, numbers, numbers)
    values, vectors = torch.linalg.eigh(hessian.detach())
    root = vectors * values.clamp_min(0).sqrt()[:, None, :]
    return torch.einsum("bij,sbj->sbi", root, columns)
