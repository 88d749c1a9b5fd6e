"""Draws and network compiled together, on a GPU as a CUDA graph."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesify.execution import compiling
from bayesify.passes.stacked import Stacked
from bayesify.predict.accumulation import one_more, statistics
from bayesify.weights import as_call

Functions = dict[tuple[int, int, bool | None], Any]
_COMPILED: "weakref.WeakKeyDictionary[Any, Functions]" = weakref.WeakKeyDictionary()


def compiled(model: Any, member: int, n: int, keep_samples: bool | None = None) -> Any:
    """`at_once`, compiled; once for every model."""
    functions = _COMPILED.setdefault(model, {})
    key = (member, n, keep_samples)
    if key not in functions:
        mode = "reduce-overhead" if next(model.parameters()).is_cuda else None
        functions[key] = torch.compile(at_once(model, member, n, keep_samples), mode=mode, dynamic=False)
    return functions[key]


def at_once(model: Any, member: int, n: int, keep_samples: bool | None = None) -> Callable[..., Any]:
    """A function of (args, kwargs, weights): the outputs of `n` draws, (n, ...), fresh ones where weights is None;
    with `keep_samples` given, their statistics."""

    def run(args: Any, kwargs: Any, weights: dict[str, Tensor] | None) -> Any:
        posterior, net = model.posterior, model.net
        call = as_call(args, kwargs)
        if weights is None:
            weights = posterior.draw(member, n)

        def one(draw: dict[str, Tensor]) -> Any:
            return model.pick(posterior.run_draw(net, call, draw, member))

        if n == 1:
            result = one_more(one({k: v[0] for k, v in weights.items()}))
        else:
            with Stacked.of(weights, compiling()):
                result = torch.func.vmap(one)(weights)
        return result if keep_samples is None else statistics(model.likelihood, result, keep_samples)

    return run


def copied(value: Any) -> Any:
    """A CUDA graph writes its next result to the same place."""
    return value.clone() if isinstance(value, Tensor) else value
