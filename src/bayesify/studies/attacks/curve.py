"""How an attack proceeds: success rate and mean entropy of the prediction after every step (paper 5, Fig. 2)."""

from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from bayesify.batches import beside
from bayesify.checks import Count, checked
from bayesify.model import BayesianModule
from bayesify.predict.accumulation import Accumulator
from bayesify.predict.prediction import evaluating
from bayesify.predict.predictive import Predictive
from bayesify.studies.attacks.gradient import likelihood_of
from bayesify.studies.attacks.iteration import iterates


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
    """A row before the first step and after each one. Options are those of `iterates` (step, num_steps, eps, …).

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
