"""Views of one input, another for every draw: test-time augmentation in the draws that are made anyway."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.checks import check_value
from bayesify.torch_internals import pytree
from bayesify.weights import Call, as_arguments, as_call

Augment = Callable[..., Any]  # x -> a view of x; with generator= where it takes one
AUTO = "auto"  # the views that the model was left by its training, where draws are averaged anyway


class Views:
    """The calls `augment(x)`, each with random numbers of its own.

    With a generator they are the same every time, however many draws run at once: the views have a generator that is
    seeded from it, and a function that takes none draws from torch's own, which is seeded for the while.
    """

    def __init__(self, augment: Augment, x: Any, generator: Generator | None) -> None:
        self.augment, self.x, self.given = augment, x, generator
        self.takes_generator = "generator" in inspect.signature(augment).parameters
        self.generator: Generator | None = None
        if generator is not None:
            check_value("generator", generator, Generator | None)
            self.generator = Generator(generator.device).manual_seed(_seed(generator))

    def __iter__(self) -> Iterator[Call]:
        return self

    def __next__(self) -> Call:
        view = self._view()
        wanted, found = _lengths(self.x), _lengths(view)
        if wanted != found:
            raise ValueError(
                f"augment={self.augment!r} made inputs of {found} examples from inputs of {wanted}: it must return a "
                f"view of every example, in what the network takes"
            )
        return as_call(view, generator=self.given)

    def _view(self) -> Any:
        if self.generator is None:
            return self.augment(self.x)
        if self.takes_generator:
            return self.augment(self.x, generator=self.generator)
        devices = {
            leaf.device for leaf in pytree.tree_leaves(self.x) if isinstance(leaf, Tensor) and leaf.is_cuda
        }
        with torch.random.fork_rng(list(devices)):
            torch.manual_seed(_seed(self.generator))
            return self.augment(self.x)


def stacked(calls: Sequence[Call]) -> tuple[Any, Any] | None:
    """The arguments of several calls as one, (calls, batch, ...), and the dimensions that vmap maps over; None where
    they have no common shape."""
    leaves, structures = zip(*(pytree.tree_flatten((c.args, dict(c.kwargs))) for c in calls), strict=True)
    columns = [*zip(*leaves, strict=True)]
    tensors = [isinstance(column[0], Tensor) for column in columns]
    if any(len({t.shape for t in column}) > 1 for column, is_ in zip(columns, tensors, strict=True) if is_):
        return None
    joined = [torch.stack(c) if is_ else c[0] for c, is_ in zip(columns, tensors, strict=True)]
    dims = [0 if is_ else None for is_ in tensors]
    return pytree.tree_unflatten(joined, structures[0]), pytree.tree_unflatten(dims, structures[0])


def check_augment(augment: Any) -> None:
    """Raise where it is no function."""
    if augment is not None and not callable(augment):
        raise TypeError(
            f"augment={augment!r} must be a function of a batch of inputs that returns another view of them, e.g. "
            f"bf.data.CropFlip(), or None"
        )


def _lengths(x: Any) -> list[int]:
    leaves = pytree.tree_leaves(as_arguments(x))
    return [len(leaf) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()]


def _seed(generator: Generator) -> int:
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))
