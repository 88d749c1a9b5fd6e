"""Draws of a network's output from its moments."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.families import standard_normal


def draws_of(output: Any, num_draws: int, generator: Generator | None, at_once: int) -> Iterable[Any]:
    """Draws of the output itself, about `at_once` numbers at a time: one pass of the network gives them all."""
    if type(output) in (tuple, list):  # several heads
        yield from zip(*(draws_of(head, num_draws, generator, at_once) for head in output), strict=True)
        return
    most = max(2, at_once // max(output.mean.numel(), 1))
    for start in range(0, num_draws, most):
        noise = _matched_noise(min(most, num_draws - start), output.mean, generator)
        if output.cov is not None:
            yield _correlated(output.mean, output.cov, noise)
            continue
        drawn = output.mean + output.var.clamp_min(0).sqrt() * noise
        if output.top is not None:
            indices, cov = output.top
            each = indices.expand(len(noise), *indices.shape)
            top = _correlated(output.mean.gather(1, indices), cov, noise.gather(2, each))
            drawn = drawn.scatter(2, each, top.to(drawn.dtype))
        yield drawn


def fixed_noise(output: Any, num_draws: int, generator: Generator) -> Any:
    """Noise for `with_noise`, the same for every example, (draws, 1, ...): over the draws its mean is exactly 0, its
    variance 1 and, where draws are many, its covariance the unit matrix."""
    if type(output) in (tuple, list):
        return tuple(fixed_noise(head, num_draws, generator) for head in output)
    like = torch.empty((1, *output.mean.shape[1:]), dtype=torch.float64)
    noise = _matched_noise(num_draws, like, generator)
    if output.cov is not None:
        unit = torch.eye(output.cov.shape[-1], dtype=torch.float64)[None]
        noise = _correlated(like.zero_(), unit, noise)
    return noise.to(output.mean)


def with_noise(output: Any, noise: Any) -> Any:
    """Draws of the output from its moments by this noise, (draws, batch, ...), without a decomposition that exported
    programs and recorded graphs lack."""
    if type(output) in (tuple, list):
        return tuple(with_noise(head, each) for head, each in zip(output, noise, strict=True))
    if output.cov is not None:
        moved = torch.einsum("bij,sj->sbi", _root(output.cov), noise.flatten(1))
        return output.mean + moved.unflatten(-1, output.mean.shape[1:])
    drawn = output.mean + output.var.clamp_min(0).sqrt() * noise
    if output.top is None:
        return drawn
    indices, cov = output.top
    own = noise.expand(drawn.shape).gather(2, indices.expand(len(noise), *indices.shape))
    top = output.mean.gather(1, indices) + torch.einsum("bij,sbj->sbi", _root(cov), own)
    return drawn.scatter(2, indices.expand(top.shape), top.to(drawn.dtype))


def _root(cov: Tensor) -> Tensor:
    """L with L Lᵀ = cov, by Cholesky's recursion; a direction without variance gets none.

    L_j = S_j / √S_jj,  S ← S − L_j L_jᵀ
    """
    left, columns, n = cov, [], cov.shape[-1]
    nothing = n * torch.finfo(cov.dtype).eps * cov.diagonal(dim1=-2, dim2=-1).amax(-1)  # what rounding leaves
    for j in range(n):
        pivot = left[:, j, j]
        inverse = torch.where(pivot > nothing, pivot, torch.inf).rsqrt()
        columns.append(left[:, :, j] * inverse[:, None])
        left = left - columns[-1][:, :, None] * columns[-1][:, None, :]
    return torch.stack(columns, -1)


def _matched_noise(n: int, like: Tensor, generator: Generator | None) -> Tensor:
    """Normal noise (n, *shape) whose mean and variance over the n draws are exactly 0 and 1 (n > 1)."""
    noise = standard_normal((n, *like.shape), like, generator)
    if n == 1:
        return noise
    noise = noise - noise.mean(0)
    return noise / noise.square().mean(0).sqrt()


def _correlated(mean: Tensor, cov: Tensor, noise: Tensor) -> Tensor:
    """mean + root·noise with root·rootᵀ = cov, by eigenvalues: a covariance may lack full rank."""
    values, vectors = torch.linalg.eigh(cov)
    root = vectors * values.clamp_min(0).sqrt()[..., None, :]
    rows = noise.reshape(*noise.shape[:2], -1)
    if len(rows) > 2 * rows.shape[-1]:  # draws enough to have no covariance of their own
        own = torch.linalg.cholesky(torch.einsum("sbi,sbj->bij", rows, rows) / len(rows))
        rows = torch.linalg.solve_triangular(own, rows.permute(1, 2, 0), upper=False).permute(2, 0, 1)
    moved = torch.einsum("bij,sbj->sbi", root, rows)
    return mean + moved.view(noise.shape)
