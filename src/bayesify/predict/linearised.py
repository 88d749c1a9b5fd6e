"""Predictions of the network linearised at the mean of its weights: outputs are N(f(x), J Σ Jᵀ)."""

from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.checks import checked
from bayesify.moments import Moments, holds
from bayesify.passes.jacobian import MOST_NUMBERS, as_output, flat, linear_draw, outputs, row_products
from bayesify.passes.layerwise import layer_products
from bayesify.posteriors.base import LinearLaw
from bayesify.predict.accumulation import Accumulator, one_more
from bayesify.predict.output_draws import draws_of
from bayesify.predict.prediction import JOINED_NUMBERS, over_batches
from bayesify.predict.predictive import Predictive
from bayesify.weights import Call, as_call

MOST_OUTPUTS = 1024  # numbers of an example's output whose covariance is taken whole
FREE_DRAWS = 1000  # draws of classes from a covariance that is there take no pass


@checked
def predict_linearised(
    model: Any,
    x: Any,
    num_draws: Any,  # checked by `model.predict`
    keep_samples: bool = False,
    generator: Generator | None = None,
    batched: bool | None = None,
    compile: bool = False,
    on_nonfinite: str = "raise",
    augment: Any = None,
) -> Predictive:
    """`model.predict(x, mode="linearised")`, in eval mode.

    Of a normal regression mean and variance are exact. Of other likelihoods `num_draws` draws of the outputs have
    their mean and variance; of classes at least 1,000, which cost no pass, unless all are kept (`keep_samples`). Where
    outputs or weights are too many for J, the draws are f + J (w − w̄) with draws of the weights, a pass each.
    """
    for name, given in {"augment": augment, "compile": compile or None}.items():
        if given is not None:
            raise ValueError(
                f"{name}={given!r} is for draws of the weights, and mode='linearised' has none: leave it out"
            )
    if holds(x, Moments):
        raise ValueError(
            "x holds bf.Moments, an input with a variance, and mode='linearised' takes exact inputs: give its mean"
        )

    def one(inputs: Any) -> Predictive:
        return _predict(model, as_call(inputs), num_draws, keep_samples, generator)

    return over_batches(model, x, one, on_nonfinite)


def _predict(
    model: Any, call: Call, num_draws: int, keep_samples: bool, generator: Generator | None
) -> Predictive:
    nets = model.posterior.nets(model.net)
    laws = [model.posterior.linear_law(model.net, i) for i in range(len(nets))]
    each = -(-num_draws // len(nets))
    free = model.likelihood.task == "classification" and not keep_samples
    many = max(each, -(-FREE_DRAWS // len(nets))) if free else each
    accumulator = Accumulator(model.likelihood, keep_samples, matched=True)
    exact = None
    for net, law in zip(nets, laws, strict=True):
        output = outputs(net, law.slots, law.weights, call, model.pick)
        numbers = flat(output)
        if not _fits(numbers, law):
            accumulator.matched = False
            for deviations in _one_by_one(law, each, generator):
                accumulator.add(
                    one_more(linear_draw(net, law.slots, law.weights, deviations, call, model.pick))
                )
            continue
        exact = output_law(net, law, call, model.pick, numbers)
        for drawn in draws_of(exact, many, generator, JOINED_NUMBERS):
            accumulator.add(as_output(drawn, output))
    found = accumulator.result()
    normal = model.likelihood.is_normal and not model.likelihood.takes_heads
    if exact is None or not normal or len(nets) > 1 or num_draws == 1:
        return found
    mean, spread = (as_output(part, output).to(found.mean.dtype) for part in exact)
    return replace(found, mean=mean, spread=spread, is_normal=True)


def output_law(net: Any, law: LinearLaw, call: Call, pick: Any, numbers: Tensor) -> Moments:
    """N(f, J Σ Jᵀ) of the numbers of every example's output, (batch, numbers)."""
    batch, size = numbers.shape
    rows = torch.eye(size, dtype=numbers.dtype, device=numbers.device).expand(batch, size, size)
    cov = numbers.new_empty(batch, size, size)
    products: Any = layer_products if law.factored else row_products
    for part, jacobian in products(net, law.slots, law.weights, call, pick, rows):
        cov[part] = law.of_outputs(jacobian).to(cov.dtype)
    cov = (cov + cov.mT) / 2
    return Moments(numbers, cov.diagonal(dim1=1, dim2=2).clamp_min(0), cov=cov)


def _fits(numbers: Tensor, law: LinearLaw) -> bool:
    size = numbers.shape[1]
    each = [w.numel() for w in law.weights.values()]
    return size <= MOST_OUTPUTS and size * (max(each) if law.factored else sum(each)) <= MOST_NUMBERS // 8


def _one_by_one(law: LinearLaw, num_draws: int, generator: Generator | None) -> Any:
    for _ in range(num_draws):
        yield {name: value[0] for name, value in law.deviations(1, generator).items()}
