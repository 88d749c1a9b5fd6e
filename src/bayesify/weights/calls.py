"""One call of a network with other values in the places of its parameters.

A tied weight has several places, its slots, and gets one value in all of them.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from torch import Generator, nn

from bayesify import torch_internals as internals
from bayesify.checks import check_value
from bayesify.execution import compiling
from bayesify.moments import Moments
from bayesify.weights.observing.outside_references import RefuseStrays
from bayesify.weights.observing.watch import inside_checkpoint

TORCHS_OWN = frozenset(vars(nn.Module()))


class Call(NamedTuple):
    """One evaluation of a network: its arguments and how to draw.

    for_loss: the output goes to the method's `nll`, so it may be anything that this understands
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    generator: Generator | None = None
    for_loss: bool = False


def as_call(
    x: Any,
    kwargs: Mapping[str, Any] | None = None,
    generator: Generator | None = None,
    for_loss: bool = False,
) -> Call:
    """The call that a user's input and further keyword arguments mean."""
    if generator is not None and not isinstance(generator, Generator):
        check_value("generator", generator, Generator | None)
    return Call(*as_arguments(x, kwargs), generator, for_loss)


def as_arguments(x: Any, kwargs: Mapping[str, Any] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """x -> (args, kwargs) for the network: a tuple is positional, a dict is keywords."""
    kwargs = {} if kwargs is None else dict(kwargs)
    if x is None:
        return (), kwargs
    if isinstance(x, Moments):
        return (x,), kwargs
    if isinstance(x, tuple | list):
        if x and all(isinstance(item, Real | list) for item in x):
            raise TypeError(f"x is a {type(x).__name__} of numbers: give a tensor, torch.tensor(x)")
        return tuple(x), kwargs
    if isinstance(x, dict) or hasattr(x, "keys"):  # a dict, or transformers' BatchEncoding
        return (), {**x, **kwargs}
    if isinstance(x, np.ndarray):
        raise TypeError("x is a numpy array: give a tensor, torch.from_numpy(x), of the network's dtype")
    if isinstance(x, str | bytes):
        raise TypeError(
            f"x={x[:20]!r} is text: give what the network takes, tensors of tokens; (x,) to one that takes text itself"
        )
    return (x,), kwargs


class Slot(NamedTuple):
    """One place of a parameter: `getattr(module, attribute)[key]`."""

    module: nn.Module
    attribute: str
    key: Any
    stray: bool = False  # something besides the network's modules holds the parameter: calls are watched

    def get(self) -> Any:
        """What stands there."""
        return getattr(self.module, self.attribute)[self.key]

    def set(self, value: Any) -> None:
        """Put `value` there."""
        getattr(self.module, self.attribute)[self.key] = value


Slots = Mapping[str, list[Slot]]
Values = Callable[[list[str]], Mapping[str, Any]]  # of the parameters with these names
Old = list[tuple[str, Slot, Any]]  # what stood in the slots before


def _swap_in(slots: Slots, values: Mapping[str, Any]) -> Old:
    old: Old = []
    for name, value in values.items():
        for slot in slots[name]:
            container = getattr(slot.module, slot.attribute)
            old.append((name, slot, container[slot.key]))
            container[slot.key] = value
    return old


def _swap_out(old: Old) -> None:
    for _, slot, value in old:
        slot.set(value)


def call_with(
    net: nn.Module, slots: Slots, values: Values, call: Call, guard: "CheckpointGuard | None" = None
) -> Any:
    """The call with `values(names)` in the slots; the old values come back whatever happens.

    `values` is asked once for all names. Under FSDP2 a unit's parameters exist only inside that unit's
    forward, so there it is asked once per unit, at that moment. `guard` knows that a draw is in place.
    """
    eager = not compiling()
    drawn = guard if eager and guard is not None else nullcontext()
    if is_sharded(net):
        with drawn:
            return _call_sharded(net, slots, values, call)
    old: Old = []
    try:
        new = values(list(slots))
        old = _swap_in(slots, new)
        strays = [(name, value) for name, slot, value in old if slot.stray and new[name] is not value]
        refuse = RefuseStrays(strays) if strays else nullcontext()
        with refuse, drawn, caches_restored(slots.values()) if eager else nullcontext():
            return net(*call.args, **call.kwargs)
    finally:
        _swap_out(old)


def is_sharded(net: nn.Module) -> bool:
    """Has `fully_shard` (FSDP2) been applied to `net` or a part of it?"""
    if not compiling() and "torch.distributed.fsdp" not in sys.modules:
        return False  # every call of a network asks, and the walk takes longer than a small layer
    waiting = [net]  # `net.modules()` would be traced as one generator inside another
    while waiting:
        module = waiting.pop()
        if is_sharded_unit(module):
            return True
        waiting += [child for child in module._modules.values() if child is not None]
    return False


def is_sharded_unit(module: nn.Module) -> bool:
    """Is `module` itself an FSDP2 unit? (Importing FSDPModule for isinstance would cost half a second.)"""
    return hasattr(type(module), "set_requires_gradient_sync")


def _units(net: nn.Module, names: list[str]) -> dict[str | None, list[str]]:
    """The random weights that each FSDP2 unit gathers, by the unit's path; None holds the rest."""
    paths = [path for path, module in net.named_modules() if is_sharded_unit(module)]
    units: dict[str | None, list[str]] = {None: [], **{path: [] for path in paths}}
    for name in names:
        holders = [path for path in paths if path == "" or name.startswith(path + ".")]
        units[max(holders, key=len) if holders else None].append(name)
    return units


def _call_sharded(net: nn.Module, slots: Slots, values: Values, call: Call) -> Any:
    """Swap inside each unit's forward: after FSDP gathered its parameters, before it frees them."""
    units = _units(net, list(slots))
    old: dict[str | None, Old] = {}
    handles = []

    def enter(path: str | None) -> None:
        old[path] = _swap_in(slots, values(units[path])) if units[path] else []

    def leave(path: str | None) -> None:
        _swap_out(old.pop(path, []))

    try:
        for path in units:
            if path is not None:
                unit = net.get_submodule(path)
                handles += [
                    # FSDP's own pre-hook stands first in the list: ours runs after the gathering
                    unit.register_forward_pre_hook(lambda *_, p=path: enter(p)),
                    unit.register_forward_hook(lambda *_, p=path: leave(p), prepend=True),
                ]
        enter(None)
        return net(*call.args, **call.kwargs)
    finally:
        for path in list(old):
            leave(path)
        for handle in handles:
            handle.remove()


@contextmanager
def caches_restored(places: Iterable[list[Slot]]) -> Iterator[None]:
    """What a call in eval mode adds to dicts of modules with random weights goes again (LeViT: attention biases)."""
    modules = {id(slot.module): slot.module for slots in places for slot in slots}.values()
    caches = [(cache, set(cache)) for m in modules if not m.training for cache in _dicts(m)]
    try:
        yield
    finally:
        for cache, before in caches:
            for key in cache.keys() - before:
                if hasattr(cache[key], "__torch_function__"):
                    del cache[key]


def _dicts(module: nn.Module) -> list[dict[Any, Any]]:
    return [value for name, value in vars(module).items() if type(value) is dict and name not in TORCHS_OWN]


def attributes_of(net: nn.Module) -> list[dict[str, Any]]:
    """Where the modules of a network keep their attributes and buffers."""
    return [store for module in net.modules() for store in (vars(module), module._buffers)]


REFUSAL = (
    "activation checkpointing inside the network recomputes it during backward, when the drawn weights are "
    "no longer in place, and would give wrong gradients. Switch it off in the network "
    "(for transformers: net.gradient_checkpointing_disable()), or checkpoint the whole call instead: "
    "torch.utils.checkpoint.checkpoint(model, x, target=y, use_reentrant=False)"
)


class CheckpointGuard:
    """A forward pre-hook on the layers with random weights: raises when one runs inside backward while no draw is in
    place. As a context: a draw is in place."""

    def __init__(self) -> None:
        self.active = False  # is a draw in place now?

    def __enter__(self) -> None:
        self.active = True

    def __exit__(self, *error: Any) -> None:
        self.active = False

    def __call__(self, module: nn.Module, args: Any) -> None:
        if compiling() or self.active:
            return
        if _inside_backward():
            raise RuntimeError(REFUSAL)

    def watch(self, net: nn.Module, names: list[str]) -> None:
        """Guard every module of `net` that holds one of the parameters `names`, itself or in a child."""
        paths = {name.rpartition(".")[0] for name in names}
        holders = {path[:i] for path in paths for i in _prefix_ends(path)}
        for path in sorted(holders):
            net.get_submodule(path).register_forward_pre_hook(self)


def _inside_backward() -> bool:
    task = internals.current_graph_task_id
    return task() != -1 if task else inside_checkpoint()


def _prefix_ends(path: str) -> list[int]:
    """Where the ancestors of a module path end: 'a.b' -> 'a', 'a.b' and the root ''."""
    return [0, *(i for i, c in enumerate(path) if c == "."), len(path)]


def without_guards(net: nn.Module) -> nn.Module:
    """`net` with all guards taken off (for plain copies handed to users)."""
    for module in net.modules():
        for key, hook in list(module._forward_pre_hooks.items()):
            if isinstance(hook, CheckpointGuard):
                del module._forward_pre_hooks[key]
    return net
