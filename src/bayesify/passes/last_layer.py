"""Many draws of the last random layer for one pass through the rest of the network (paper 1, §4.2).

The layer's output does not become a tensor but a `LastOutput`, which knows its law given the layer's input. What the
network does to its output may only move entries, or multiply them by constants and add such (units of targets): the
likelihood of every draw must follow from the layer's output.
"""

from collections.abc import Collection
from typing import Any

from torch import Generator, Tensor

from bayesify.moments import StandIn, replace
from bayesify.moments.missing import calling_module, name_of
from bayesify.moments.registry import spelled
from bayesify.passes.local import LOCAL_KINDS, LocalWeight, output_law
from bayesify.weights.calls import Slots
from bayesify.weights.observing.watch import layer_of
from bayesify.weights.where import kind_of

MOVES = frozenset(
    spelled(
        *("reshape", "reshape_as", "view", "view_as", "flatten", "unflatten", "ravel", "contiguous", "clone"),
        *("squeeze", "unsqueeze", "t", "transpose", "permute", "movedim", "moveaxis", "swapaxes", "swapdims"),
        *("__getitem__", "narrow", "select", "chunk", "split", "tensor_split", "unbind"),
        *("to", "type", "type_as", "float", "double", "half", "bfloat16"),
    )
)

FACTORS, TERMS = frozenset(spelled("mul multiply __mul__")), frozenset(spelled("add __add__"))


def refusal(num_draws: int, reason: str, remedy: str) -> str:
    """The message of every error of this option."""
    return (
        f"num_likelihood_draws={num_draws} draws the last layer's output, but {reason}: {remedy}, or average whole "
        f"passes instead, num_likelihood_draws=1 and model.loss(x, y, num_draws={num_draws})"
    )


class LastOutput(StandIn):
    """Stands in for the output of the last random layer.

    parts:   (mean, std) of independent normal entries where `normal`; else the outputs of all draws
    """

    def __init__(
        self, parts: tuple[Tensor, ...], normal: bool, num_draws: int, generator: Generator | None
    ) -> None:
        self.parts = parts
        self.normal = normal
        self.num_draws = num_draws
        self.generator = generator

    def metadata(self) -> Tensor:
        """One part: all have the output's shape."""
        return self.parts[0]

    def moved(self, parts: tuple[Tensor, ...]) -> "LastOutput":
        """The same law with its entries elsewhere."""
        return LastOutput(parts, self.normal, self.num_draws, self.generator)

    @classmethod
    def operate(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Operations that move entries act on every part; others are refused."""
        if (
            func in FACTORS | TERMS
            and isinstance(args[0], LastOutput)
            and isinstance(args[1], Tensor)
            and not kwargs
        ):
            first, *others = args[0].parts
            by = args[1].abs() if args[0].normal else args[1]
            if func in FACTORS:
                return args[0].moved((first * args[1], *(part * by for part in others)))
            return args[0].moved((first + args[1], *(p if args[0].normal else p + by for p in others)))
        if func not in MOVES or not isinstance(args[0], LastOutput):
            found: list[LastOutput] = []
            replace((args, kwargs), LastOutput, found.append)
            reason = f"the network puts it through {name_of(func)!r} in {calling_module()}"
            remedy = "return the output itself (reshaped, sliced or in another dtype)"
            raise ValueError(refusal(found[0].num_draws, reason, remedy))
        output, rest = args[0], replace(args[1:], LastOutput, LastOutput.metadata)
        results = [func(part, *rest, **kwargs) for part in output.parts]
        if isinstance(results[0], Tensor):
            return output.moved(tuple(results))
        return tuple(output.moved(parts) for parts in zip(*results, strict=True))  # chunk, split, unbind


def last_output(
    func: Any, x: Tensor, weight: LocalWeight, bias: Any, rest: Any, num_draws: int
) -> LastOutput:
    """The output of a linear operation under many draws: its law for normal weights, else every draw's output."""
    if weight.q.gaussian:
        parts = output_law(func, x, weight, bias, rest)
        return LastOutput(parts, True, num_draws, weight.generator)
    weights = weight.take().rsample(num_draws, weight.generator)
    biases: Any = [bias] * num_draws
    if isinstance(bias, LocalWeight):
        biases = bias.take().rsample(num_draws, weight.generator)
    outputs = [func(x, w, b, *rest[0], **rest[1]) for w, b in zip(weights, biases, strict=True)]
    return LastOutput(tuple(outputs), False, num_draws, weight.generator)


def last_layer(slots: Slots, last_used: str, once: Collection[str], num_draws: int) -> list[str]:
    """The random tensors of the layer of `last_used`, the last in a forward.

    It must be linear, with a random weight; `once` holds the weights of linear layers that are used once in a forward.
    """
    if not last_used:
        reason = "which layer is the last is not known before the network ran"
        remedy = "give bayesify(..., example=x), or call the model once before compiling"
        raise ValueError(refusal(num_draws, reason, remedy))
    layer = layer_of(last_used)
    names = [name for name in slots if layer_of(name) == layer]
    kind = kind_of(slots[last_used][0].module)
    obstacle = ""
    if kind not in LOCAL_KINDS:
        obstacle = f"not of a linear or convolutional layer (kind: {kind})"
    elif any(name not in once for name in names):
        obstacle = "of a layer that is tied, parametrized or used more than once in a forward"
    elif all(slots[name][0].get().dim() == 1 for name in names):
        obstacle = "of a layer without a random weight of its own"
    if obstacle:
        reason = f"the last random parameter that the network uses, {last_used!r}, is {obstacle}"
        raise ValueError(refusal(num_draws, reason, "choose other random parameters with where="))
    return names


__all__ = ["LastOutput", "last_layer", "last_output", "refusal"]
