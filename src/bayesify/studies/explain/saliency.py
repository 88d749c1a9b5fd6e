"""Saliency: the gradient of the predicted class's averaged probability with respect to the input."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from bayesify.checks import Count, checked

#: inputs (N, …) -> one number per input, differentiable
Score = Callable[[Tensor], Tensor]


@checked
def probability_of(model: nn.Module, label: Tensor, num_draws: Count = 10, seed: int = 0) -> Score:
    """x ↦ p̄(label | x), averaged over draws that are the same at every call: (N,).

    Args:
        model: a Bayesian classifier, or a plain network of logits.
        label: (N,) class indices.
    """
    from bayesify.batches import beside
    from bayesify.predict.prediction import evaluating
    from bayesify.studies.attacks.gradient import likelihood_of, outputs

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
