"""Where the variance of an output comes from: the weights, or noise in the input."""

from typing import Any, NamedTuple

from torch import Tensor

from bayesify.moments.standin import replace
from bayesify.moments.values import Moments, mean_of


class Sources(NamedTuple):
    """Parts of the variance of a network's output; their sum is `model(x).var`."""

    weights: Tensor  # epistemic: what remains with an exact input
    inputs: Tensor  # what the input's own variance adds


def sources(model: Any, x: Any) -> Sources:
    """Two passes: with and without the variance of `x`, a `Moments` (or a tuple or dict that holds some).

    >>> weights, inputs = bf.moments.sources(model, bf.Moments(x, noise_var))
    """
    whole, exact = model.pick(model(x)), model.pick(model(replace(x, Moments, mean_of)))
    return Sources(exact.var, whole.var - exact.var)
