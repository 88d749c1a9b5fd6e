"""Averaging a network's output over draws."""

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils import _pytree as pytree

from bayesify.batches import inputs_of, to_device
from bayesify.families import standard_normal
from bayesify.moments import Moments
from bayesify.posteriors import Call
from bayesify.predictive import Accumulator, Predictive, concatenate
from bayesify.weights.slots import is_sharded_unit

VMAP_NUMBERS = 2**26  # at most this many weights of stacked draws at once


def predict(
    model: Any,
    x: Any,
    num_draws: int,
    keep_samples: bool = False,
    generator: Generator | None = None,
    batched: bool | None = None,
) -> Predictive:
    """`model.predict` on one input or a loader; the model is in eval mode already.

    batched: run several draws at once by vmap (True), one after the other (False), or choose (None).
    """
    if isinstance(x, Iterable) and not isinstance(x, Tensor | tuple | list | dict) and not hasattr(x, "keys"):
        device = next(model.parameters()).device
        parts = [
            predict(
                model, to_device(inputs_of(batch), device), num_draws, keep_samples, generator, batched
            ).to("cpu")
            for batch in x
        ]
        if not parts:
            raise ValueError("the loader is empty: nothing to predict")
        return concatenate(parts)
    from bayesify.module import as_arguments

    call = Call(*as_arguments(x, {}), generator)
    accumulator = Accumulator(model.likelihood, keep_samples)
    members = len(model.posterior.nets(model.net))
    each = 1 if model.posterior.deterministic else -(-num_draws // members)
    for member in range(members):
        for output in outputs(model, call, member, each, batched):
            accumulator.add(output)
    return accumulator.result()


def outputs(model: Any, call: Call, member: int, num_draws: int, batched: bool | None) -> Iterable[Any]:
    """The network's prediction for each of `num_draws` draws of one member."""
    posterior, net = model.posterior, model.net
    if getattr(posterior, "sampling", "draw") == "moments":
        yield from _from_moments(model.pick(posterior.run(net, call, member)), num_draws, call.generator)
        return
    if is_sharded_unit(model):  # the weights exist only inside forward
        for _ in range(num_draws):
            yield model.pick(model(call.args, generator=call.generator, **call.kwargs))
        return
    chunk = _chunk(model, call, num_draws, batched)
    done = 0
    while done < num_draws:
        n = min(chunk, num_draws - done)
        weights = posterior.draw(member, n, call.generator)
        stacked = _vmapped(model, call, member, weights) if n > 1 else None
        for i in range(n):
            if stacked is not None:
                yield stacked[i]
            else:
                one = {name: value[i] for name, value in weights.items()}
                yield model.pick(posterior.run_draw(net, call, one, member))
        done += n


def _vmapped(model: Any, call: Call, member: int, weights: dict[str, Tensor]) -> list[Any] | None:
    """All draws of `weights` at once; None where the network has an operation that vmap cannot batch."""
    if model.posterior.vmap_refusal:
        return None

    def one(draw: dict[str, Tensor]) -> Any:
        return model.pick(model.posterior.run_draw(model.net, call, draw, member))

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")  # an op that vmap loops over
            result = torch.func.vmap(one, randomness="different")(weights)
    except torch.OutOfMemoryError:
        return None  # too many draws at once for this input; another may fit
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        model.posterior.vmap_refusal = str(error)
        return None
    count = len(next(iter(weights.values())))
    return [pytree.tree_map(lambda t, i=i: t[i], result) for i in range(count)]


def _chunk(model: Any, call: Call, num_draws: int, batched: bool | None) -> int:
    """How many draws to run at once: many for small inputs, one where a loop is as fast."""
    weights = sum(w.numel for w in model.selection.random)
    fit = max(1, min(num_draws, VMAP_NUMBERS // max(weights, 1)))
    if batched is not None:
        return fit if batched else 1
    tensors = [t for t in [*call.args, *call.kwargs.values()] if isinstance(t, Tensor)]
    batch = max((t.shape[0] for t in tensors if t.dim()), default=1)
    on_cpu = all(t.device.type == "cpu" for t in tensors)
    # measured by benchmarks/predict.py: on a CPU only tiny work gains from batching the draws
    small = batch * weights <= 2**17 if on_cpu else batch <= 8
    return fit if small else 1


def _from_moments(moments: Moments, num_draws: int, generator: Generator | None) -> Iterable[Tensor]:
    """Draws of the output itself: one pass of the network, whatever the number of draws."""
    for _ in range(num_draws):
        noise = standard_normal(tuple(moments.mean.shape), moments.mean, generator)
        yield moments.mean + moments.var.clamp_min(0).sqrt() * noise
