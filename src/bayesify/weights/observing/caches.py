"""What a network computes from its weights and keeps for the next call, which would keep one draw for all."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from bayesify.weights.slots import Slot

TORCHS_OWN = frozenset(vars(nn.Module()))


@contextmanager
def nothing_kept(places: Iterable[list["Slot"]]) -> Iterator[None]:
    """What a call in eval mode adds to dicts of modules with random weights goes again (LeViT: attention biases)."""
    modules = {id(slot.module): slot.module for slots in places for slot in slots}.values()
    caches = [(cache, set(cache)) for m in modules if not m.training for cache in _dicts(m)]
    try:
        yield
    finally:
        for cache, before in caches:
            for key in [
                key for key in cache if key not in before and hasattr(cache[key], "__torch_function__")
            ]:
                del cache[key]


def _dicts(module: nn.Module) -> list[dict[Any, Any]]:
    return [value for name, value in vars(module).items() if type(value) is dict and name not in TORCHS_OWN]
