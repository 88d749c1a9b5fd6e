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
