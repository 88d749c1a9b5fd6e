"""Where a network keeps its parameters, and calling it with other values in those places.

A slot is one place `getattr(module, attribute)[key]`: an entry of `module._parameters`, or of any
list or dict of the module that holds the same Parameter (`nn.LSTM` keeps such a list). A tied weight
has several slots and gets one value in all of them.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from types import CellType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bayesify.weights.observing.caches import nothing_kept
from bayesify.weights.observing.outside_references import RefuseStrays, held_elsewhere
from bayesify.weights.observing.watch import address, memory


class Slot(NamedTuple):
    module: nn.Module
    attribute: str
    key: Any
    stray: bool = False  # something besides the network's modules holds the parameter: calls are watched

    def get(self) -> Any:
        return getattr(self.module, self.attribute)[self.key]

    def set(self, value: Any) -> None:
        getattr(self.module, self.attribute)[self.key] = value


Slots = Mapping[str, list[Slot]]


def find_slots(net: nn.Module) -> dict[str, list[Slot]]:
    """Every parameter's places, by its first name; `slots[name][0]` is its own `_parameters` entry."""
    slots = _find_slots(net)
    for name in held_elsewhere(slots):
        slots[name][0] = slots[name][0]._replace(stray=True)
    return slots


def _find_slots(net: nn.Module) -> dict[str, list[Slot]]:
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    slots: dict[str, list[Slot]] = {name: [] for name in names.values()}
    for module in net.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                slots[names[id(parameter)]].append(Slot(module, "_parameters", key))
    for module in net.modules():
        for attribute, container in vars(module).items():
            if attribute == "_parameters" or type(container) not in (list, dict):
                continue
            items = container.items() if type(container) is dict else enumerate(container)
            for place, value in items:
                if id(value) in names and isinstance(value, nn.Parameter):
                    slots[names[id(value)]].append(Slot(module, attribute, place))
    return slots


def hidden_places(net: nn.Module) -> dict[int, str]:
    """Parameters that the network also keeps where no value can be put in for a call, and where that is: in a tuple
    or set, in a list inside a list, as an attribute past registration, in a module that is not registered; or as a
    view of it (`weight.data`, `weight.t()`) anywhere that the network's attributes lead to.
    """
    parameters = {id(p) for p in net.parameters()}
    ranges = [(memory(p), id(p)) for p in net.parameters()]
    registered = set(net.modules())
    places: dict[int, str] = {}

    def look(value: Any, place: str, reachable: bool) -> None:
        if isinstance(value, nn.Parameter):
            if id(value) in parameters and not reachable:
                places.setdefault(id(value), place)
        elif isinstance(value, nn.Module):
            if value not in registered:
                for name, parameter in value.named_parameters():
                    look(parameter, f"{place}.{name}", False)
        elif isinstance(value, list | tuple | set | frozenset | dict):
            for item in value.values() if isinstance(value, dict) else value:
                look(item, place, reachable and type(value) in (list, dict))

    def look_for_views(value: Any, place: str, depth: int = 0) -> None:
        if isinstance(value, Tensor):
            start = 0 if isinstance(value, nn.Parameter) else address(value)
            for key in (key for span, key in ranges if start in span):
                places.setdefault(key, place)
        elif depth < 4 and not isinstance(value, type | nn.Module | str | bytes):
            for item in _parts(value):
                look_for_views(item, place, depth + 1)

    for path, module in net.named_modules():
        for attribute, value in {**vars(module), **module._buffers}.items():
            if attribute in ("_parameters", "_modules", "_buffers") or attribute.endswith("_hooks"):
                continue
            if (
                f"{attribute}_orig" not in module._parameters
            ):  # torch.nn.utils' hooks make it anew in every call
                look_for_views(value, f"{path}.{attribute}".lstrip("."))
            flat = isinstance(value, list | dict)
            for item in (value.values() if isinstance(value, dict) else value) if flat else (value,):
                shallow = flat and type(value) in (list, dict) and isinstance(item, nn.Parameter)
                look(item, f"{path}.{attribute}".lstrip("."), shallow)
    return places


def _parts(value: Any) -> list[Any]:
    """What a container, a function or an object of one's own holds."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(iter(value))  # a class of one's own may refuse to say how long it is
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    return list(getattr(value, "__dict__", {}).values())


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
    net: nn.Module,
    slots: Slots,
    values: Callable[[list[str]], Mapping[str, Any]],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """`net(*args, **kwargs)` with `values(names)` in the slots; the old values come back whatever happens.

    `values` is asked once for all names. Under FSDP2 a unit's parameters exist only inside that unit's
    forward, so there it is asked once per unit, at that moment.
    """
    if is_sharded(net):
        return _call_sharded(net, slots, values, args, kwargs)
    old: Old = []
    try:
        new = values(list(slots))
        old = _swap_in(slots, new)
        strays = [(name, value) for name, slot, value in old if slot.stray and new[name] is not value]
        refuse = RefuseStrays(strays) if strays else nullcontext()
        with refuse, nullcontext() if torch.compiler.is_compiling() else nothing_kept(slots.values()):
            return net(*args, **kwargs)
    finally:
        _swap_out(old)


def is_sharded(net: nn.Module) -> bool:
    """Has `fully_shard` (FSDP2) been applied to `net` or a part of it?"""
    if not torch.compiler.is_compiling() and "torch.distributed.fsdp" not in sys.modules:
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


def _call_sharded(
    net: nn.Module,
    slots: Slots,
    values: Callable[[list[str]], Mapping[str, Any]],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
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
        return net(*args, **kwargs)
    finally:
        for path in list(old):
            leave(path)
        for handle in handles:
            handle.remove()
