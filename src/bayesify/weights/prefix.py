"""The part of a network before its first random weight, computed once for all draws."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesify import torch_internals as internals
from bayesify.torch_internals import pytree


class Record(NamedTuple):
    """A call of one module: what it returned, and the versions of those tensors (in inference mode they have none)."""

    module: nn.Module
    output: Any
    versions: list[int] | None


class Prefix:
    """Replays the outputs of modules without random weights that ran before the first use of one.

    The first pass is observed: calls of such modules are recorded until an operation takes a random weight. Later
    passes return what was recorded. Nothing is replayed where the first pass drew random numbers of its own before
    that point, or wrote into a recorded output afterwards.

    Nothing is looked for before the first pass: draws that run at once have none, and one pass has nothing to replay.

    >>> with Prefix(net, names, len(draws)) as prefix:
    ...     for weights in draws:
    ...         with prefix.one_pass(weights.values()):
    ...             call(net, weights)
    """

    def __init__(self, net: nn.Module, names: Iterable[str], num_passes: int) -> None:
        self.net, self.names = net, names
        self.modules: list[nn.Module] = []
        self.records: list[Record] = []
        self.next = 0
        # then "recording", "closed" (a random weight was used), "replaying" or "off"
        self.state = "new" if num_passes > 1 else "off"

    def __enter__(self) -> "Prefix":
        return self

    def __exit__(self, *error: Any) -> None:
        for module in self.modules:
            module.__dict__.pop("forward", None)
        self.records.clear()

    @contextmanager
    def one_pass(self, weights: Iterable[Any]) -> Iterator[None]:
        """One call of the network with these weights in place."""
        if self.state == "new":
            self.modules = _without(self.net, set(self.names))
            for module in self.modules:
                module.forward = self._replaced(module, module.forward)
            self.state = "recording" if self.modules else "off"
        if self.state != "recording":
            self.next = 0
            yield
            return
        self.random_state = _random_state()
        with _FirstUse({id(w) for w in weights}, self._close):
            yield
        self._close()
        untouched = all(None is not _versions(r.output) == r.versions for r in self.records)
        if self.state == "closed":
            self.state = "replaying" if untouched and self.records else "off"

    def _replaced(self, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.state == "replaying" and self.next < len(self.records):
                record = self.records[self.next]
                if record.module is module:
                    self.next += 1
                    return record.output
                self.next = len(self.records)  # another way through the network than the first time
            output = forward(*args, **kwargs)
            if self.state == "recording":
                self.records.append(Record(module, output, []))
                # a module may work in place on the output of the one before: both are the same tensor then
                self.records = [r._replace(versions=_versions(r.output)) for r in self.records]
            return output

        return call

    def _close(self) -> None:
        if self.state == "recording":
            self.state = "closed" if _random_state() == self.random_state else "off"


class _FirstUse(TorchFunctionMode):
    """Calls `found` before the first operation that takes one of the tensors `ids`."""

    def __init__(self, ids: set[int], found: Callable[[], None]) -> None:
        super().__init__()
        self.ids = ids
        self.found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(id(leaf) in self.ids for leaf in pytree.tree_leaves((args, kwargs))):
            self.found()
        return func(*args, **kwargs)


def _without(net: nn.Module, names: set[str]) -> list[nn.Module]:
    """The topmost modules that hold none of the parameters `names`; lists of modules are looked into."""
    random = {id(p) for name, p in net.named_parameters() if name in names}
    found: dict[nn.Module, None] = {}

    def visit(module: nn.Module) -> None:
        for child in module.children():
            callable_ = type(child).forward is not nn.Module.forward and "forward" not in child.__dict__
            if callable_ and not any(id(p) in random for p in child.parameters()):
                found[child] = None
            else:
                visit(child)

    visit(net)
    return list(found)


def _versions(output: Any) -> list[int] | None:
    tensors = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
    return None if any(t.is_inference() for t in tensors) else [internals.version_of(t) for t in tensors]


def _random_state() -> list[bytes]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return [state.numpy().tobytes() for state in states]
