"""Attacks on a model's inputs: one gradient, one iteration, attacks as settings of it. Adding one: see `pgd`."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from bayesify.batches import beside
from bayesify.checks import Count, Positive, checked
from bayesify.laws.noise import drawn, standard_normal
from bayesify.likelihoods import Likelihood, likelihood
from bayesify.likelihoods.draws import rsample
from bayesify.model import BayesianModule
from bayesify.moments import certain, replace
from bayesify.names import check_choice
from bayesify.predict import prediction
from bayesify.predict.accumulation import Accumulator
from bayesify.predict.prediction import evaluating
from bayesify.predict.predictive import Predictive
from bayesify.torch_internals import pytree
from bayesify.weights import as_call

__all__ = [
    "AVERAGES",
    "NORMS",
    "AttackRow",
    "attack_curve",
    "fast_sign",
    "fgsm",
    "input_gradient",
    "iterates",
    "pgd",
    "success",
]


AVERAGES = ("loss", "probs")


@checked
def input_gradient(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    num_draws: Count = 1,
    average: str = "loss",
    generator: Generator | None = None,
) -> Tensor:
    """∂/∂x of the negative log-likelihood of `y`, summed over the batch: of x's shape.

    model:    a plain network (of logits) or a Bayesian model; parameters get no gradient, batch norm is in eval mode
    average:  over draws, of the "loss" (expectation over the model's own noise), or of the "probs": the loss of the
              averaged prediction
    """
    check_choice(AVERAGES, average, "average")
    law, y = likelihood_of(model), beside(model, y)
    with torch.enable_grad(), evaluating(model):
        x = x.detach().requires_grad_(True)
        log_probs = [
            law.log_prob(output, law.check(output, y, values=False))
            for output in outputs(model, x, num_draws, generator)
        ]
        stacked = torch.stack(log_probs)  # (draws, batch)
        mixed = stacked.mean(0) if average == "loss" else stacked.logsumexp(0) - math.log(len(stacked))
        (gradient,) = torch.autograd.grad(-mixed.sum(), x)
    return gradient


def outputs(model: nn.Module, x: Tensor, num_draws: int, generator: Generator | None) -> Iterator[Any]:
    """The network's predictions for `num_draws` draws (as many for each member of an ensemble), as `predict` draws."""
    x = beside(model, x)
    if not isinstance(model, BayesianModule):
        yield model(x)
        return
    members, each = prediction.shares(model, num_draws)
    call = as_call(x, generator=generator)
    with model._locked():
        for member in range(members):
            if model.posterior.sampling == "moments":  # with a gradient, which the draws of a prediction lack
                moments = replace(model.pick(model.posterior.run(model.net, call, member)), Tensor, certain)
                draws: Iterable[Any] = (rsample(moments, 1, generator) for _ in range(each))
            else:
                draws = prediction.outputs(model, call, member, each, batched=False)
            for drawn in draws:  # (1, batch, ...)
                yield pytree.tree_map(lambda t: t[0], drawn)


def likelihood_of(model: nn.Module) -> Likelihood:
    """The model's; of a plain network that of logits."""
    return model.likelihood if isinstance(model, BayesianModule) else likelihood("categorical")


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


@checked
def fgsm(model: nn.Module, x: Tensor, y: Tensor, eps: Positive, **options: Any) -> Tensor:
    """x + eps sign(∂loss/∂x), inside `bounds`: one step (Goodfellow et al. 2014). Options are those of `iterates`.

    >>> attacked = fgsm(model, x, y, eps=0.1, num_draws=10)
    """
    *_, last = iterates(model, x, y, step=eps, num_steps=1, **options)
    return last


@checked
def fast_sign(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    step: Positive,
    num_steps: Count,
    eps: Positive | None = None,
    targeted: bool = False,
    **options: Any,
) -> Tensor:
    """`num_steps` steps of fixed length along the sign of the gradient; without `eps` there is no ball.

    The iterative fast sign method, targeted or not (paper 5, Section 6.3; Kurakin et al. 2016).

    >>> attacked = fast_sign(model, x, target, step=0.01, num_steps=20, targeted=True, num_draws=10)
    """
    options |= {"eps": eps, "targeted": targeted}
    *_, last = iterates(model, x, y, step=step, num_steps=num_steps, **options)
    return last


@checked
def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: Positive,
    step: Positive | None = None,
    num_steps: Count = 10,
    norm: str = "linf",
    random_start: bool = True,
    **options: Any,
) -> Tensor:
    """`num_steps` steps of length `step` (2.5 eps/num_steps without it) from a random point of the ball.

    Projected gradient descent in a ball of the L∞ or L2 norm (Madry et al. 2018).

    >>> attacked = pgd(model, x, y, eps=0.5, norm="l2", num_steps=20)
    """
    options |= {"eps": eps, "num_steps": num_steps, "norm": norm, "random_start": random_start}
    *_, last = iterates(model, x, y, step=2.5 * eps / num_steps if step is None else step, **options)
    return last


class AttackRow(NamedTuple):
    """Where an attack stands after `iteration` steps."""

    iteration: int
    success_rate: float
    entropy: float  # mean over the examples, nats
    confidence: float
    distance: float  # mean largest change of an input


@checked
def attack_curve(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    targeted: bool = False,
    num_draws: Count = 10,
    eval_draws: Count = 10,
    generator: Generator | None = None,
    **options: Any,
) -> list[AttackRow]:
    """A row before the first step and after each one (paper 5, Fig. 2). Options are those of `iterates`.

    num_draws:  draws of each gradient; eval_draws: draws of the predictions that are counted

    >>> rows = attack_curve(model, x, target, targeted=True, step=0.01, num_steps=20)
    """
    settings = {"targeted": targeted, "num_draws": num_draws, "generator": generator, **options}
    rows = []
    for i, attacked in enumerate(iterates(model, x, y, **settings)):
        prediction = _predict(model, attacked, eval_draws, generator)
        hits = success(prediction, y, targeted).float().mean()
        distance = (attacked - x).abs().flatten(1).amax(1).mean()
        numbers = (hits, prediction.entropy.mean(), prediction.confidence.mean(), distance)
        rows.append(AttackRow(i, *(float(number) for number in numbers)))
    return rows


def success(prediction: Predictive, y: Tensor, targeted: bool = False) -> Tensor:
    """Which examples are predicted as the attacker wants: as `y` if targeted, as anything else if not."""
    label = prediction.label
    return label == y.to(label.device) if targeted else label != y.to(label.device)


def _predict(model: nn.Module, x: Tensor, num_draws: int, generator: Generator | None) -> Predictive:
    if isinstance(model, BayesianModule):
        return model.predict(x, num_draws, generator=generator)
    accumulator = Accumulator(likelihood_of(model))
    with torch.no_grad(), evaluating(model):
        accumulator.add(model(beside(model, x))[None])
    return accumulator.result().to(x.device)
