"""What every likelihood does with shapes, precisions and weights of examples."""

import math

import torch
from torch import Tensor

from bayesify.checks import as_tensor

NEAR = 3  # noise off by less is found by training
TINY = 1e-30  # noise below it is none: all targets are the same, or there is one


def weighted_nll(log_prob: Tensor, sample_weight: Tensor | None, values: bool = False) -> Tensor:
    """Mean over examples of −log p, each times its weight: (batch,) -> a scalar; `values`: look at the weights."""
    if log_prob.shape[0] == 0:
        raise ValueError("the batch is empty: a loss needs at least one example")
    if sample_weight is not None:
        if not isinstance(sample_weight, Tensor):
            sample_weight = as_tensor(sample_weight, "sample_weight", log_prob).to(log_prob.dtype)
        if sample_weight.shape != log_prob.shape:
            raise ValueError(
                f"sample_weight has shape {tuple(sample_weight.shape)}, but there are "
                f"{log_prob.shape[0]} examples: give one weight per example"
            )
        wrong = ~((sample_weight >= 0) & (sample_weight < math.inf)) if values else None
        if wrong is not None and wrong.any():
            raise ValueError(
                f"sample_weight holds {float(sample_weight[wrong][0]):g}: weights must be 0 or larger, and finite"
            )
        log_prob = sample_weight * log_prob
    return -log_prob.mean()


def normal_log_prob(mean: Tensor, var: Tensor, target: Tensor) -> Tensor:
    """log N(y; mean, var), summed over all but the batch dimension: (batch,)."""
    return sum_over_example(-0.5 * ((target - mean).square() / var + (2 * math.pi * var).log()))


def log_of(probs: Tensor) -> Tensor:
    """log p in float64, finite where p = 0."""
    return probs.double().clamp_min(torch.finfo(torch.float32).tiny).log()


def std_of(target: Tensor) -> float:
    """The std of targets (batch, outputs, …) about the mean of each output, averaged over outputs as variances are."""
    y = target.double()
    return float(y.var((0, *range(2, y.dim())) if y.dim() > 3 else 0, correction=0).mean().sqrt())


def lack_of(mean: Tensor, target: Tensor, noise: Tensor) -> tuple[Tensor | None, float]:
    """(y − mean, the std that the noise may start at: the error's, and at most that of the targets). None in place of
    an error that is no larger than the targets' std. (None, 0) where the noise is right within a factor of NEAR."""
    error = target.double() - mean.double()
    std, size = std_of(target), float(error.square().mean().sqrt())
    if size / NEAR <= float(noise) <= size * NEAR:
        return None, 0.0
    return (error if size > std else None), min(std, size)


def means_of(target: Tensor) -> Tensor:
    """The mean of each output (outputs,); of targets with places one for all: (1,)."""
    y = target.double()
    return y.mean(0).view(-1) if y.dim() <= 2 else y.mean().view(1)


def sum_over_example(values: Tensor) -> Tensor:
    """(batch, ...) -> (batch,)."""
    return values.flatten(1).sum(1) if values.dim() > 1 else values


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision widened; float32 and float64 as they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def match_real(output: Tensor, target: Tensor, values: bool) -> Tensor:
    """A real target in the shape of `output`, at least in float32; with `values` it must be finite."""
    target = match_shape(output, target).to(torch.promote_types(output.dtype, torch.float32))
    if values and not target.isfinite().all():
        raise ValueError(f"target holds NaN or infinite values (shape {tuple(target.shape)})")
    return target


def match_shape(output: Tensor, target: Tensor) -> Tensor:
    """`target` in the shape of `output`; sizes of 1 may be added or dropped, nothing is broadcast."""
    if output.shape == target.shape:
        return target
    if [s for s in output.shape if s != 1] == [s for s in target.shape if s != 1]:
        return target.reshape(output.shape)
    raise ValueError(
        f"target has shape {tuple(target.shape)}, the network's output {tuple(output.shape)}: "
        f"they must agree (nothing is broadcast)"
    )
