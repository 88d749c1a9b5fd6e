"""One iteration for all attacks: a step along the gradient, back into the ball, back into the range of inputs."""

from collections.abc import Iterator

import torch
from torch import Generator, Tensor, nn

from bayesify.batches import beside
from bayesify.checks import Count, Positive, checked
from bayesify.laws.noise import drawn, standard_normal
from bayesify.names import check_choice
from bayesify.studies.attacks.gradient import input_gradient

NORMS = ("linf", "l2")
Bounds = tuple[float, float] | None


@checked
def iterates(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    step: Positive,
    num_steps: Count,
    eps: Positive | None = None,
    norm: str = "linf",
    targeted: bool = False,
    random_start: bool = False,
    num_draws: Count = 1,
    average: str = "loss",
    bounds: Bounds = (0.0, 1.0),
    generator: Generator | None = None,
) -> Iterator[Tensor]:
    """The attacked inputs after 0, 1, …, `num_steps` steps, detached, on x's device.

        x ← project(clamp(x ± step · direction(∂loss/∂x)))

    y:         true labels; with `targeted` the labels to reach, towards which the loss falls
    direction: the sign ("linf") or the gradient over its Euclidean length per example ("l2")
    eps:       radius of the ball about the start in which the result stays; None for no ball
    bounds:    range of the inputs, None for no range; applied to the result, not inside the differentiated graph
    """
    check_choice(NORMS, norm, "norm")
    start, y = beside(model, (x.detach(), y))
    moved = _random_start(start, eps, norm, generator) if random_start else start
    moved = _clamp(moved, bounds)
    yield moved.to(x.device)
    for _ in range(num_steps):
        gradient = input_gradient(model, moved, y, num_draws, average, generator)
        sign = -1.0 if targeted else 1.0
        moved = _clamp(moved + sign * step * direction(gradient, norm), bounds)
        if eps is not None:
            moved = _clamp(start + project(moved - start, eps, norm), bounds)
        yield moved.to(x.device)


def direction(gradient: Tensor, norm: str) -> Tensor:
    """The steepest step of length 1 in the norm: the sign, or the gradient over its length per example."""
    if norm == "linf":
        return gradient.sign()
    tiny = torch.finfo(gradient.dtype).tiny
    return gradient / lengths(gradient).clamp_min(tiny)


def project(shift: Tensor, eps: float, norm: str) -> Tensor:
    """The nearest point of the ball of radius eps (for "l2" per example)."""
    if norm == "linf":
        return shift.clamp(-eps, eps)
    length = lengths(shift)
    return torch.where(length > eps, shift * (eps / length.clamp_min(torch.finfo(shift.dtype).tiny)), shift)


def lengths(values: Tensor) -> Tensor:
    """Euclidean length per example: (batch, 1, …)."""
    shape = (-1, *(1,) * (values.dim() - 1))
    return values.flatten(1).norm(dim=1).view(shape)


def _random_start(x: Tensor, eps: float | None, norm: str, generator: Generator | None) -> Tensor:
    """Uniform in the ball."""
    if eps is None:
        raise ValueError("random_start=True needs a ball to start in: give eps")
    if norm == "linf":
        return x + eps * (2 * drawn(torch.rand, tuple(x.shape), x, generator, x.dtype) - 1)
    noise = standard_normal(tuple(x.shape), x, generator)
    radius = drawn(torch.rand, (len(x), *(1,) * (x.dim() - 1)), x, generator, x.dtype)
    return x + eps * radius ** (1 / x[0].numel()) * direction(noise, norm)


def _clamp(x: Tensor, bounds: Bounds) -> Tensor:
    return x if bounds is None else x.clamp(*bounds)
