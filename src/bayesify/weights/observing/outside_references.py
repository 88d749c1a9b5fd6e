"""Parameters that something besides the network's modules holds: a closure, a foreign object, a global name.

Such a place keeps the parameter itself while a random value stands in the parameter's slots. Whether the network
ever reads it there cannot be seen by looking, so every call of such a network is watched, compiled ones while they
are traced: an operation that takes the parameter itself is an error.
"""

import gc
import sys
from collections.abc import Iterable, Mapping
from types import FrameType, GeneratorType
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from bayesify.weights.calls import Slot


def referenced_outside(slots: Mapping[str, list["Slot"]]) -> set[str]:
    """The names in `slots` whose parameter has a holder besides its slots; optimisers do not count."""
    names = [name for name, places in slots.items() if _num_references(places) > len(places)]
    if not names:
        return set()
    known = {id(getattr(slot.module, slot.attribute)) for name in names for slot in slots[name]}
    parameters = {id(slots[name][0].get()): name for name in names}
    found: set[str] = set()
    for holder in gc.get_referrers(*(slots[name][0].get() for name in names)):
        if id(holder) in known or isinstance(holder, FrameType | GeneratorType) or _is_optimizers(holder):
            continue
        held = holder.values() if isinstance(holder, dict) else gc.get_referents(holder)
        found |= {parameters[id(value)] for value in held if id(value) in parameters}
    return found


def _num_references(places: list["Slot"]) -> int:
    return sys.getrefcount(places[0].get()) - 1  # the argument is one more


def _is_optimizers(holder: Any) -> bool:
    """A list of a parameter group. (An optimiser's state has parameters as keys only, which nobody computes with.)"""
    return isinstance(holder, list) and any(
        isinstance(owner, dict) and owner.get("params") is holder for owner in gc.get_referrers(holder)
    )


class RefuseStrays(TorchFunctionMode):
    """An operation that takes one of `replaced` raises. Traceable: it compares tensors by `is`."""

    def __init__(self, replaced: Iterable[tuple[str, Tensor]]) -> None:
        super().__init__()
        self.replaced = list(replaced)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        for value in flat((*args, *kwargs.values())):
            for name, parameter in self.replaced:
                if value is parameter and any(hasattr(r, "__torch_function__") for r in flat((result,))):
                    raise RuntimeError(stray_refusal(name))  # reading a shape is not a use
        return result


def stray_refusal(name: str) -> str:
    """The error of a parameter that is read from outside its slots."""
    return (
        f"the network uses its parameter {name!r} from a place where another value cannot be put (a closure, an "
        f"object that is not a module, a view made before), so its output would be wrong: keep the parameter in a "
        f"module, or leave it out with where=~bf.where.matching({name!r})"
    )


def flat(values: tuple[Any, ...]) -> list[Any]:
    """The items of nested lists and tuples, in order."""
    items: list[Any] = []
    for value in values:
        items += flat(tuple(value)) if isinstance(value, list | tuple) else [value]
    return items
