"""Where a network keeps its parameters: an entry of `module._parameters`, or of any list or dict of the module that
holds the same Parameter (`nn.LSTM` keeps such a list); and where no other value could be put.
"""

from functools import partial
from types import CellType, FunctionType
from typing import Any

from torch import Tensor, nn

from bayesify.weights.calls import Slot
from bayesify.weights.observing.outside_references import referenced_outside
from bayesify.weights.observing.watch import address, memory


def find_slots(net: nn.Module) -> dict[str, list[Slot]]:
    """Every parameter's places, by its first name; `slots[name][0]` is its own `_parameters` entry."""
    slots = _find_slots(net)
    for name in referenced_outside(slots):
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
            if f"{attribute}_orig" not in module._parameters:  # else torch's hooks make it anew in every call
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
