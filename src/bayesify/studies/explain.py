"""Which pixels a prediction rests on, and how far such a map is to be trusted (paper 3, Fig. 4)."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from bayesify.batches import beside
from bayesify.checks import Count, Positive, checked
from bayesify.predict.prediction import evaluating
from bayesify.studies.attacks import likelihood_of, outputs

__all__ = ["Score", "infidelity", "probability_of", "saliency", "sensitivity"]

#: inputs (N, …) -> one number per input, differentiable
Score = Callable[[Tensor], Tensor]


@checked
def probability_of(model: nn.Module, label: Tensor, num_draws: Count = 10, seed: int = 0) -> Score:
    """x ↦ p̄(label | x), averaged over draws that are the same at every call: (N,).

    Args:
        model: a Bayesian classifier, or a plain network of logits.
        label: (N,) class indices.
    """
    law = likelihood_of(model)
    if not law.is_multiclass:
        raise ValueError(f"saliency of a {law.name} model: give a score of your own, a function of x")

    def score(x: Tensor) -> Tensor:
        moved = beside(model, x)
        generator = Generator(moved.device).manual_seed(seed)
        with evaluating(model):
            drawn = [law.summarize(output)[0] for output in outputs(model, moved, num_draws, generator)]
        probs = torch.stack(drawn).mean(0)  # (N, classes)
        return probs.gather(1, label[:, None].to(probs.device)).squeeze(1).to(x.device)

    return score


def saliency(score: Score, x: Tensor, absolute: bool = False) -> Tensor:
    """∂ score / ∂ x, of x's shape; `absolute` takes its size.

    >>> label = model.predict(x).label
    >>> saliency(probability_of(model, label), x).shape == x.shape
    True
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(score(x).sum(), x)
    return gradient.abs() if absolute else gradient


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

    As sensitivity by Yeh et al. 2019, and as in captum.

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
