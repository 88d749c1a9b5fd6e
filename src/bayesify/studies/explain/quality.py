"""Infidelity and sensitivity of an explanation φ(x) (Yeh et al. 2019, as in captum)."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from bayesify.checks import Count, Positive, checked
from bayesify.studies.explain.saliency import Score


@torch.no_grad()
@checked
def infidelity(
    score: Score,
    x: Tensor,
    explanation: Tensor,
    num_draws: Count = 10,
    std: Positive = 0.1,
    generator: Generator | None = None,
    normalise: bool = False,
) -> Tensor:
    """E_I (Iᵀφ − (f(x) − f(x − I)))², I ~ N(0, std²): how badly φ predicts changes of the score, (N,).

    normalise: multiply φ by the best factor first, E[Iᵀφ Δf] / E[(Iᵀφ)²], so that its scale does not count.
    """
    now = score(x)
    predicted, changed = [], []
    for _ in range(num_draws):
        noise = std * torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        predicted.append((noise * explanation).flatten(1).sum(1))
        changed.append(now - score(x - noise))
    change, guess = torch.stack(changed), torch.stack(predicted)  # (draws, N)
    if normalise:
        square = guess.square().mean(0)
        guess = guess * torch.where(square > 0, (guess * change).mean(0) / square.clamp_min(1e-30), 0)
    return (guess - change).square().mean(0)


@checked
def sensitivity(
    explain: Callable[[Tensor], Tensor],
    x: Tensor,
    num_draws: Count = 10,
    radius: Positive = 0.02,
    generator: Generator | None = None,
    relative: bool = True,
) -> Tensor:
    """max ‖φ(x + δ) − φ(x)‖ over draws of |δ_i| ≤ radius, (N,).

    explain: x -> φ(x), e.g. `lambda x: saliency(score, x)`.
    relative: divided by ‖φ(x)‖, as captum does; the paper's formula is without.
    """
    before = explain(x).flatten(1)
    largest = torch.zeros(len(x), device=x.device, dtype=before.dtype)
    for _ in range(num_draws):
        move = radius * (2 * torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype) - 1)
        moved = explain(x + move).flatten(1)
        largest = torch.maximum(largest, (moved - before).norm(dim=1))
    if not relative:
        return largest
    size = before.norm(dim=1)
    return largest / torch.where(size > 0, size, 1)
