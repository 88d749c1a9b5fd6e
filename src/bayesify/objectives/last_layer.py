"""The data term averaged over many draws of the last layer (paper 1, §4.2 and Observation 1 corrected).

Given the input of the last layer its output is u ~ N(mean, std²), entries independent, for normal weights. Then

    normal likelihood   mean (y − u_i)² = (y − ū)² + std² v,   ū = mean + std z/√M,   v = χ²_{M−1}/M
                        one joint draw of both statistics for any M
    others              V + (mean − sg(mean)) c₁ + (std − sg(std)) c₂ with V = mean g(u_i), c₁ = mean g′(u_i),
                        c₂ = mean g′(u_i) ξ_i, g = −log p, as `stream` does for the KL

so that the graph has two numbers per output for every M. Other families average over outputs that are in the graph.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesify.divergences.statistics import chunk_size
from bayesify.divergences.stream import slopes_and_value
from bayesify.laws.noise import standard_normal
from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.shapes import at_least_float32, weighted_nll
from bayesify.passes.last_layer import LastOutput, refusal


def last_layer_nll(
    likelihood: Likelihood,
    output: Any,
    target: Tensor,
    sample_weight: Tensor | None = None,
    values: bool = True,
    *,
    num_draws: int,
) -> Tensor:
    """Mean negative log-likelihood per example, averaged over draws of `output`: a `LastOutput`, or heads."""
    heads = tuple(output) if type(output) in (tuple, list) else (output,)
    if not all(isinstance(head, LastOutput) for head in heads):
        reason = "the network's output, or a head of it, is not that of the last random layer"
        raise ValueError(refusal(num_draws, reason, "make one linear layer the last with where="))
    first = heads[0]
    parts = [[at_least_float32(part) for part in head.parts] for head in heads]
    target = likelihood.matched(_joined([head[0] for head in parts]), target, values)

    def total(*draws: Tensor) -> Tensor:
        """Σ over draws, each head (draws, batch, ...), of the mean nll."""
        n = draws[0].shape[0]
        output = _joined([draw.flatten(0, 1) for draw in draws])
        log_prob = likelihood.per_example(output, target.expand(n, *target.shape).flatten(0, 1))
        return weighted_nll(log_prob.view(n, -1).sum(0), sample_weight, values)

    if not first.normal:
        return total(*(torch.stack(head) for head in parts)) / num_draws
    means, stds = [head[0] for head in parts], [head[1] for head in parts]
    if len(heads) == 1:
        log_prob = likelihood.average_log_prob(means[0], stds[0], target, num_draws, first.generator)
        if log_prob is not None:
            return weighted_nll(log_prob, sample_weight, values)
    if any(parameter.requires_grad for parameter in likelihood.parameters()):
        # parameters of the likelihood need the graph of every draw
        return total(*_draws(first, means, stds, num_draws)[0]) / num_draws
    return _streamed(total, first, means, stds)


def _joined(heads: list[Tensor]) -> Any:
    return heads[0] if len(heads) == 1 else tuple(heads)


def _streamed(
    total: Callable[..., Tensor], output: LastOutput, means: list[Tensor], stds: list[Tensor]
) -> Tensor:
    """The mean of `total` over draws, by value and first gradient; draws are made and forgotten chunk by chunk."""
    leaves = [*means, *stds]
    sums: list[Tensor] = []  # of the value and of the slopes of all leaves
    with torch.no_grad():
        size = chunk_size(sum(mean.numel() for mean in means), output.num_draws, means[0].device.type)
        for start in range(0, output.num_draws, size):
            draws, noise = _draws(output, means, stds, min(size, output.num_draws - start))
            slopes, value = slopes_and_value(total, *draws)
            by_std = [(slope * xi).sum(0) for slope, xi in zip(slopes, noise, strict=True)]
            parts = [value, *(slope.sum(0) for slope in slopes), *by_std]
            sums = [a + b for a, b in zip(sums, parts, strict=True)] if sums else parts
    surrogate = sums[0]
    for leaf, slope in zip(leaves, sums[1:], strict=True):
        surrogate = surrogate + ((leaf - leaf.detach()) * slope).sum()
    return surrogate / output.num_draws


def _draws(
    output: LastOutput, means: list[Tensor], stds: list[Tensor], n: int
) -> tuple[list[Tensor], list[Tensor]]:
    """n draws of every head, (n, batch, ...), and their noise."""
    noise = [standard_normal((n, *mean.shape), mean, output.generator) for mean in means]
    return [mean + std * xi for mean, std, xi in zip(means, stds, noise, strict=True)], noise
