"""What a network's output does when its weights move: products of every example's Jacobian, by vmap or by a loop."""

import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bayesify.torch_internals import pytree
from bayesify.weights import Call, call_with
from bayesify.weights.calls import Slots

NUMBERS, MOST_NUMBERS = 2**26, 2**31  # of a chunk's products, and of those of one example
#: networks that vmap refused once
REFUSED: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()
Weights = Mapping[str, Tensor]


def flat(output: Any) -> Tensor:
    """All numbers of every example's output, over all heads: (batch, numbers)."""
    return torch.cat([leaf.flatten(1) for leaf in pytree.tree_leaves(output)], 1)


def as_output(numbers: Tensor, like: Any) -> Any:
    """The inverse of `flat`, of (draws, batch, numbers) too."""
    leaves, structure = pytree.tree_flatten(like)
    parts = numbers.split([leaf[0].numel() for leaf in leaves], -1)
    shaped = [p.reshape(*p.shape[:-1], *leaf.shape[1:]) for p, leaf in zip(parts, leaves, strict=True)]
    return pytree.tree_unflatten(shaped, structure)


def row_products(
    net: nn.Module,
    slots: Slots,
    weights: Weights,
    call: Call,
    pick: Callable[[Any], Any],
    rows: Tensor,
) -> Iterator[tuple[slice, dict[str, Tensor]]]:
    """rᵀ J of every example by name, (examples, rows, *shape), for as many examples at a time as NUMBERS allows.

    rows:  (batch, rows, numbers of an example's output). The identity gives J itself
    pick:  the prediction in what the network returns; the network is in eval mode
    """
    batch, size = len(rows), rows.shape[1] * sum(w.numel() for w in weights.values())
    if size > MOST_NUMBERS:
        raise ValueError(
            f"the Jacobian of one example has {size:,} numbers, of {rows.shape[1]} outputs by all random weights; at "
            f"most {MOST_NUMBERS:,} are accepted: make fewer weights random with where=bf.where.output"
        )
    most = max(1, NUMBERS // max(1, size))
    for start in range(0, batch, most):
        part = slice(start, min(start + most, batch))
        found = None if net in REFUSED else _vmapped(net, slots, weights, call, pick, rows, part)
        yield part, _looped(net, slots, weights, call, pick, rows, part) if found is None else found


def outputs(net: nn.Module, slots: Slots, weights: Weights, call: Call, pick: Callable[[Any], Any]) -> Any:
    """The prediction with these weights in place."""
    return pick(call_with(net, slots, lambda names: {name: weights[name] for name in names}, call))


def linear_draw(
    net: nn.Module,
    slots: Slots,
    weights: Weights,
    deviations: Weights,
    call: Call,
    pick: Callable[[Any], Any],
) -> Any:
    """f(w) + J (w' − w), the output of the network linearised at `weights`, for w' − w = `deviations`."""
    output, of = tangent(net, slots, weights, call, pick)
    return pytree.tree_map(torch.add, output, of(deviations))


def tangent(
    net: nn.Module, slots: Slots, weights: Weights, call: Call, pick: Callable[[Any], Any]
) -> tuple[Any, Callable[[Weights], Any]]:
    """f(w), and the function w' − w -> J (w' − w).

    By reverse mode alone: u -> Jᵀ u is linear, and J is its transpose. Forward mode knows fewer operations, and no
    program of any batch size can be written of it.
    """

    def run(w: Weights) -> Any:
        return outputs(net, slots, w, call, pick)

    with sdpa_kernel(SDPBackend.MATH):  # the fused ones have no second derivatives
        pulled: Any = torch.func.vjp(run, dict(weights))
        zeros = pytree.tree_map(torch.zeros_like, pulled[0])
        pushed: Any = torch.func.vjp(lambda u: pulled[1](u)[0], zeros)
    return pulled[0], lambda move: pushed[1](dict(move))[0]


def _vmapped(
    net: nn.Module, slots: Slots, weights: Weights, call: Call, pick: Any, rows: Tensor, part: slice
) -> dict[str, Tensor] | None:
    """None where the network has an operation that vmap cannot batch."""
    leaves, structure = pytree.tree_flatten((call.args, dict(call.kwargs)))
    each = [_is_batched(leaf, len(rows)) for leaf in leaves]

    def one(mine: list[Tensor], own: Tensor) -> dict[str, Tensor]:
        given = iter(mine)
        filled = [next(given)[None] if is_ else leaf for leaf, is_ in zip(leaves, each, strict=True)]
        args, kwargs = pytree.tree_unflatten(filled, structure)
        seen = Call(args, kwargs)
        found: Any = torch.func.vjp(lambda w: flat(outputs(net, slots, w, seen, pick))[0], dict(weights))
        return torch.func.vmap(lambda row: found[1](row)[0])(own)

    batched = [leaf[part] for leaf, is_ in zip(leaves, each, strict=True) if is_]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")  # an op that vmap loops over
            return torch.func.vmap(one)(batched, rows[part])
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError):
        REFUSED.add(net)
        return None


@torch.enable_grad()
def _looped(
    net: nn.Module, slots: Slots, weights: Weights, call: Call, pick: Any, rows: Tensor, part: slice
) -> dict[str, Tensor]:
    """Example after example, row after row."""
    mine = {name: w.detach().clone().requires_grad_() for name, w in weights.items()}
    found: list[list[tuple[Tensor, ...]]] = []
    for i in range(len(rows))[part]:
        out = flat(outputs(net, slots, mine, examples(call, slice(i, i + 1), len(rows)), pick))[0]
        options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
        found.append([torch.autograd.grad(out, [*mine.values()], row, **options) for row in rows[i]])
    return {
        name: torch.stack([torch.stack([one[j] for one in example]) for example in found]).detach()
        for j, name in enumerate(mine)
    }


def examples(call: Call, part: slice, batch: int) -> Call:
    """The call for some of its examples."""
    leaves, structure = pytree.tree_flatten((call.args, dict(call.kwargs)))
    own = [leaf[part] if _is_batched(leaf, batch) else leaf for leaf in leaves]
    return Call(*pytree.tree_unflatten(own, structure))


def _is_batched(leaf: Any, batch: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == batch
