"""Draws of an output from its moments, with gradients."""

from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.laws.noise import standard_normal


def rsample(output: Any, num_draws: int, generator: Generator | None = None) -> Any:
    """(draws, batch, ...): mean + root · noise of moments, or of each head of a tuple."""
    if type(output) in (tuple, list):
        return tuple(rsample(head, num_draws, generator) for head in output)
    mean = output.mean
    noise = standard_normal((num_draws, *mean.shape), mean, generator)
    if output.cov is not None:
        moved = torch.einsum("bij,sbj->sbi", _root(output.cov), noise.reshape(*noise.shape[:2], -1))
        return mean + moved.view(noise.shape)
    return mean + output.var.clamp_min(1e-16).sqrt() * noise  # a root of 0 has no gradient


def _root(cov: Tensor) -> Tensor:
    """L with L Lᵀ = cov, and with a gradient where cov lacks full rank: its diagonal is raised by a little."""
    jitter = 1e-5 * cov.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True).clamp_min(1e-12)
    return torch.linalg.cholesky(cov + jitter.expand(cov.shape[:-1]).diag_embed())
