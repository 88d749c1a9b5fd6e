"""The gradient of the loss with respect to the input, averaged over draws of a random network."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.batches import beside
from bayesify.checks import Count, checked
from bayesify.likelihoods import Likelihood, likelihood
from bayesify.likelihoods.draws import rsample
from bayesify.model import BayesianModule
from bayesify.moments import certain, replace
from bayesify.names import check_choice
from bayesify.predict import prediction
from bayesify.predict.prediction import evaluating
from bayesify.torch_internals import pytree
from bayesify.weights import as_call

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
