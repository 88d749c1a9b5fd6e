"""A weight of its own for every example of a batch, without a loop over examples.

A stand-in for a weight whose entries are chosen among components: norm layers, linear maps and convolutions whose
input has the batch in front get one choice per example; any other use takes the choice of the first example. Dropped
units are factors of the layer's input, W (m_b ∘ x_b), which costs a multiplication.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments import StandIn, replace
from bayesify.moments.rules.linear import CONVOLUTIONS

#: norm -> places of weight and bias among its arguments; do they lie on the channel axis (else: the last axes)?
NORMS: dict[Any, tuple[int, int | None, bool]] = {
    F.batch_norm: (3, 4, True),
    F.instance_norm: (3, 4, True),
    F.group_norm: (2, 3, True),
    F.layer_norm: (2, 3, False),
    F.rms_norm: (2, None, False),
}
GROUPS = 6  # the place of `groups` among the arguments of every convolution


class ExampleWeight(StandIn):
    """Stands in for a weight or bias.

    like:        a tensor of the weight's shape, dtype and device
    one, each:   one choice, (*shape), and one for every example, (batch, *shape)
    components:  where an example takes a whole component, all of them, and
    choose:      results of an operation with each component, (batch, ...) -> the chosen ones, (batch, ...)
    units:       where only the inputs of a layer are kept or dropped, the factor of each, (batch, inputs)
    """

    def __init__(
        self,
        like: Tensor,
        batch: int,
        one: Callable[[], Tensor],
        each: Callable[[], Tensor],
        components: list[Tensor] | None = None,
        choose: Callable[[list[Tensor]], Tensor] | None = None,
        units: Callable[[], Tensor] | None = None,
    ) -> None:
        self.like = like
        self.batch = batch
        self.one = one
        self.each = each
        self.components = components
        self.choose = choose
        self.units = units

    def metadata(self) -> Tensor:
        """The tensor whose place it takes."""
        return self.like

    @classmethod
    def operate(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Norms, linear maps and convolutions take one choice per example; others one for all."""
        if func in NORMS:
            return _norm(func, args, kwargs)
        if func is F.linear:
            return _linear(*args, **kwargs)
        if func in CONVOLUTIONS:
            return _convolution(func, *args, **kwargs)
        return _shared(func, args, kwargs)


def _shared(func: Any, args: Any, kwargs: Any) -> Any:
    """The operation with one choice for the whole batch."""
    args, kwargs = (replace(a, ExampleWeight, lambda w: w.one()) for a in (args, kwargs))
    return func(*args, **kwargs)


def _fits(x: Any, *weights: Any) -> bool:
    """Does `x` hold one row per example of the batch the choices were made for?"""
    sizes = {w.batch for w in weights if isinstance(w, ExampleWeight)}
    return isinstance(x, Tensor) and x.dim() >= 2 and sizes == {x.shape[0]}


def _norm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """γ_b ∘ norm(x)_b + β_b for example b."""
    at_weight, at_bias, channels = NORMS[func]
    names = {at_weight: "weight"} if at_bias is None else {at_weight: "weight", at_bias: "bias"}
    affine = {name: args[i] if i < len(args) else kwargs.get(name) for i, name in names.items()}
    x = args[0] if args else kwargs["input"]
    if not _fits(x, *affine.values()):
        return _shared(func, args, kwargs)
    bare = tuple(None if i in names else value for i, value in enumerate(args))
    y = func(*bare, **{key: value for key, value in kwargs.items() if key not in affine})
    for name, value in affine.items():
        if value is not None:
            value = _beside(value, y, channels)
            y = y * value if name == "weight" else y + value
    return y


def _beside(value: Any, y: Tensor, channels: bool) -> Tensor:
    """A weight of a norm, or a bias, in the shape that broadcasts against `y`, (batch, 1, …)."""
    own = isinstance(value, ExampleWeight)
    value = value.each() if own else value[None]  # (batch or 1, *shape)
    ones = (1,) * (y.dim() - value.dim())
    shape = (*value.shape, *ones) if channels else (value.shape[0], *ones, *value.shape[1:])
    return value.reshape(shape).to(y.dtype)


def _linear(input: Any, weight: Any, bias: Any = None) -> Tensor:
    """y_b = W_b x_b + c_b: (batch, …, in) -> (batch, …, out)."""
    if not _fits(input, weight, bias):
        return _shared(F.linear, (input, weight, bias), {})
    if not isinstance(weight, ExampleWeight):
        y = F.linear(input, weight)
    elif weight.units is not None:
        factor = weight.units().to(input.dtype)  # (batch, in)
        y = F.linear(input * factor.view(len(factor), *(1,) * (input.dim() - 2), -1), weight.like)
    elif weight.components is not None and len(weight.components) <= weight.batch:
        assert weight.choose is not None
        y = weight.choose([F.linear(input, w) for w in weight.components])  # K outputs, one chosen
    else:
        rows = input.reshape(input.shape[0], -1, input.shape[-1])  # (batch, positions, in)
        y = torch.bmm(rows, weight.each().to(rows.dtype).mT)  # (batch, positions, out)
        y = y.view(*input.shape[:-1], -1)
    return y if bias is None else y + _beside(bias, y, channels=False)


def _convolution(func: Any, input: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Tensor:
    """One grouped convolution: the examples become groups, each with its own kernel."""
    if not _fits(input, weight, bias) or input.dim() != weight.dim():
        return _shared(func, (input, weight, bias, *args), kwargs)
    batch = input.shape[0]
    positional = len(args) > GROUPS - 3
    groups = args[GROUPS - 3] if positional else kwargs.get("groups", 1)

    def apply(x: Tensor, w: Tensor, groups: int) -> Tensor:
        if positional:
            return func(x, w, None, *args[: GROUPS - 3], groups, *args[GROUPS - 2 :], **kwargs)
        return func(x, w, None, *args, **{**kwargs, "groups": groups})

    if isinstance(weight, ExampleWeight) and weight.units is not None:
        factor = weight.units().to(input.dtype)  # (batch, in)
        y = apply(input * factor.view(*factor.shape, *(1,) * (input.dim() - 2)), weight.like, groups)
    elif isinstance(weight, ExampleWeight):
        x = input.reshape(1, -1, *input.shape[2:])  # (1, batch · channels, ...)
        y = apply(x, weight.each().flatten(0, 1).to(x.dtype), batch * groups)
        y = y.view(batch, -1, *y.shape[2:])  # (batch, out, ...)
    else:
        y = apply(input, weight, groups)
    return y if bias is None else y + _beside(bias, y, channels=True)
