"""The local pass: sample each linear operation's output instead of its weights.

Local reparameterization: y ~ N(E y, Var y), independent for every example, where the moments come from
the linear moment rule at zero input variance. Flipout: one weight draw for the batch, decorrelated
between examples by random signs. Every other use of a weight takes one draw of it, the same for all uses.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bayesify.families import Family, standard_normal
from bayesify.laws.noise import random_signs
from bayesify.moments import Moments, StandIn, replace
from bayesify.moments.rules.linear import CONVOLUTIONS, LINEAR_MAPS, linear_map, variance_map
from bayesify.moments.values import parts

LOCAL_KINDS = ("linear", "conv")  # layers whose weights may take the local pass
VAR_FLOOR = 1e-16  # keeps the gradient of the square root finite where an output has no variance


class UsedAgain(RuntimeError):
    """A weight of the local pass was used a second time; such weights take the draw pass."""

    ADVICE = (
        "is used more than once in a forward, so it needs the draw pass, and compiled code cannot find that "
        "out: give bayesify(..., example=x), or call the model once before compiling"
    )

    @property
    def name(self) -> str:
        """The weight that was used a second time."""
        return self.args[0]


class LocalWeight(StandIn):
    """Stands in for a weight or bias of a linear operation, whose output `sample` makes."""

    def __init__(self, name: str, q: Family, sample: "Sample", generator: Generator | None) -> None:
        self.name = name
        self.q = q
        self.sample = sample
        self.generator = generator
        self.used = False
        self.drawn: Tensor | None = None

    def metadata(self) -> Tensor:
        """The mean of the weight."""
        return self.q.mean

    def draw(self) -> Tensor:
        """One draw, the same for every use in this forward."""
        if self.used:
            raise UsedAgain(self.name, UsedAgain.ADVICE)
        if self.drawn is None:
            self.drawn = self.q.rsample(generator=self.generator)
        return self.drawn

    def take(self) -> Family:
        """Claim the weight for one local use."""
        if self.used or self.drawn is not None:
            raise UsedAgain(self.name, UsedAgain.ADVICE)
        self.used = True
        return self.q

    @classmethod
    def operate(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A linear operation samples its output; any other takes the draw."""
        if func in LINEAR_MAPS:
            x, weight, bias, rest = _linear_arguments(*args, **kwargs)
            if isinstance(weight, LocalWeight) and isinstance(x, Tensor):
                return weight.sample(func, x, weight, bias, rest)
        args = replace(args, LocalWeight, LocalWeight.draw)
        kwargs = replace(kwargs, LocalWeight, LocalWeight.draw)
        return func(*args, **kwargs)


#: (linear operation, its input, weight and bias, its further arguments) -> the layer's output
Sample = Callable[[Any, Tensor, LocalWeight, Any, Any], Any]


def random_weights(
    distributions: Mapping[str, Family], samples: Mapping[str, Sample], generator: Generator | None
) -> dict[str, Any]:
    """Stand-ins for the names in `samples`, one draw for every other weight."""
    drawn = {name: q for name, q in distributions.items() if name not in samples}
    values: dict[str, Any] = {
        name: LocalWeight(name, distributions[name], sample, generator)
        for name, sample in samples.items()
        if name in distributions
    }
    if drawn:
        qs = list(drawn.values())
        values.update(zip(drawn, type(qs[0]).rsample_all(qs, generator), strict=True))
    return values


def _linear_arguments(
    input: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any
) -> tuple[Any, Any, Any, Any]:
    return input, weight, bias, (args, kwargs)


def local(func: Any, x: Tensor, weight: LocalWeight, bias: Any, rest: Any) -> Tensor:
    """y = E y + √Var y · ε."""
    mean, std = output_law(func, x, weight, bias, rest)
    return mean + std * standard_normal(mean.shape, mean, weight.generator)


def of_one_row(func: Any, x: Tensor, weight: LocalWeight, bias: Any, rest: Any) -> Tensor:
    """As `local` for a single input of a linear layer, which is a draw of the weights then; of more rows, or
    positions of a convolution, one draw for all."""
    if func is F.linear and x.numel() == x.shape[-1]:
        return local(func, x, weight, bias, rest)
    drawn = bias.draw() if isinstance(bias, LocalWeight) else bias
    return func(x, weight.draw(), drawn, *rest[0], **rest[1])


def output_law(func: Any, x: Tensor, weight: LocalWeight, bias: Any, rest: Any) -> tuple[Tensor, Tensor]:
    """Mean and std of the output y; the entries of one example are independent."""
    q = weight.take()
    b = _moments(bias.take()) if isinstance(bias, LocalWeight) else bias
    if q.zero_mean:
        b_mean, b_var = parts(b)
        var = variance_map(func, x, q.variance, b_var, *rest[0], **rest[1])
        mean = _bias_alone(b_mean, q, var)
    else:
        mean, var = linear_map(func, x, _moments(q), b, *rest[0], **rest[1])
    wide = torch.promote_types(var.dtype, torch.float32)  # the floor is zero in half precision
    return mean, var.to(wide).clamp_min(VAR_FLOOR).sqrt().to(mean.dtype)


def _moments(q: Family) -> Moments:
    return Moments(q.mean, q.variance)


def _bias_alone(bias: Tensor | None, q: Family, like: Tensor) -> Tensor:
    """The mean output of weights of mean zero, of the shape and dtype of `like`."""
    if bias is None:
        return like.new_zeros(()).expand(like.shape)
    return _per_output(bias.to(like.dtype), q).expand(like.shape)


def _per_output(bias: Tensor, q: Family) -> Tensor:
    """(outputs,) -> (outputs, 1, ...), a 1 for each dimension of the kernel: what broadcasts against the output."""
    return bias.view(-1, *(1,) * (len(q.shape) - 2))


def flipout(func: Any, x: Tensor, weight: LocalWeight, bias: Any, rest: Any) -> Tensor:
    """y = E w·x + r ∘ (Δw·(s ∘ x)) + E b + t ∘ Δb; r, s, t random signs, one set per example."""
    args, kwargs = rest
    features = 1 if func in CONVOLUTIONS else -1  # the feature dimension of x and y
    q = weight.take()
    delta = q.rsample(generator=weight.generator)
    if not q.zero_mean:
        delta = delta - q.mean
    b, b_delta = bias, None
    if isinstance(bias, LocalWeight):
        q_b = bias.take()
        b, b_delta = q_b.mean, q_b.rsample(generator=weight.generator) - q_b.mean
    batched = x.dim() == len(q.shape) or (features == -1 and x.dim() > 1)
    s = _signs(x, features, batched, weight.generator)
    noise = func(x * s, delta, None, *args, **kwargs)
    y = noise * _signs(noise, features, batched, weight.generator)
    y = y + (_bias_alone(b, q, y) if q.zero_mean else func(x, q.mean, b, *args, **kwargs))
    if b_delta is not None:
        y = y + _signs(y, features, batched, weight.generator) * _per_output(b_delta.to(y.dtype), q)
    return y


def _signs(like: Tensor, features: int, batched: bool, generator: Generator | None) -> Tensor:
    """±1 for each example and feature, shared over positions: (batch, 1, ..., features, ...)."""
    keep = {0, features % like.dim()} if batched else {like.dim() - 1 if features == -1 else 0}
    return random_signs(tuple(n if d in keep else 1 for d, n in enumerate(like.shape)), like, generator)


SAMPLES: dict[str, Sample] = {"local": local, "flipout": flipout}

__all__ = [
    "LOCAL_KINDS",
    "SAMPLES",
    "LocalWeight",
    "Sample",
    "UsedAgain",
    "of_one_row",
    "output_law",
    "random_weights",
]
