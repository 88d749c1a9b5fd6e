"""Patched tensors and the choices of one evaluation: whose choices a tensor takes, and its value for a choice."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Generator, Tensor

from bayesify.execution import transformed
from bayesify.families import standard_normal
from bayesify.passes.per_example import ExampleWeight
from bayesify.posteriors.patched.assignments import Assignment
from bayesify.posteriors.patched.kl import Held
from bayesify.posteriors.patched.multi_tensor import FlatComponents
from bayesify.posteriors.patched.weight_norm import rescaled
from bayesify.weights import Call, Slot

if TYPE_CHECKING:
    from bayesify.posteriors.patched.components import Components


#: what a unit chose: the number of a component; assignments; or one-hot rows that carry a gradient
Chosen = int | Tensor


class Patch(NamedTuple):
    """One patched tensor: whose assignments it takes, its shape, and the shape against which z has `z_shape`."""

    unit: str
    shape: tuple[int, ...]
    view: tuple[int, ...]
    z_shape: tuple[int, ...]


def patch_of(name: str, slot: Slot, assignment: Assignment) -> Patch:
    """The patch of one parameter under an assignment."""
    weight, module = slot.get(), slot.module
    view, z_shape = assignment.view(weight, module), assignment.shape(weight, module)
    return Patch(assignment.unit(name), tuple(weight.shape), view, z_shape)


def value_at(patch: Patch, centroids: Sequence[Any], chosen: Chosen, n: int | None = None) -> Tensor:
    """Σ_k 1[Z = k] ∘ M_k: (*shape), or (n, *shape) for n rows of assignments."""
    if isinstance(chosen, int):
        return centroids[chosen]
    viewed = [m if m is None else m.view(patch.view) for m in centroids]
    if chosen.is_floating_point():  # one-hot rows, (size, K)
        weights = chosen.mT.reshape(-1, *patch.z_shape)  # (K, *z_shape)
        total: Any = sum(r * m for r, m in zip(weights, viewed, strict=True) if m is not None)
        return total.view(patch.shape)
    if n is not None and chosen.shape[-1] == 1 and None not in centroids:
        return torch.stack(list(centroids)).index_select(0, chosen[:, 0])
    lead = () if n is None else (n,)
    return pick(chosen.reshape(*lead, *patch.z_shape), viewed).reshape(*lead, *patch.shape)


def pick(z: Tensor, values: Sequence[Tensor | None]) -> Tensor:
    """Σ_k 1[z = k] ∘ values_k, all broadcast against z; None stands for zero."""
    result: Any = values[0]
    for k, value in enumerate(values[1:], 1):
        result = torch.where(z == k, 0 if value is None else value, result)
    return result


class Assigned(NamedTuple):
    """The choices of one evaluation, by unit, and, where they are assignments, all of them in a row."""

    by_unit: Mapping[str, Chosen]
    row: Tensor | None = None


def assign(q: "Components", call: Call) -> Assigned:
    """One choice for every unit; per example, (batch, size) of them."""
    if q.mixing.learned:
        return Assigned({unit: q.mixing.relaxed(unit, call.generator) for unit in q.mixing.sizes})
    if q.assignment.scalar and not transformed() and not q.per_example and q.device.type == "cpu":
        return Assigned(q.mixing.draw_on_host(call.generator))
    z = q.mixing.draw(q.device, _batch_size(call) if q.per_example else None, call.generator)
    return Assigned(q.mixing.by_unit(z), z)


def flat_for(q: "Components", held: Held, chosen: Assigned) -> FlatComponents | None:
    """The flat form where it serves: assignments on the device, one for the batch, of all its tensors."""
    if q.flat is None or chosen.row is None or (q.per_example and chosen.row.dim() > 1):
        return None
    return q.flat if all(name in held.own for name in q.flat.names) else None


def weights_for(
    q: "Components",
    held: Held,
    chosen: Assigned,
    row: Tensor | None,
    generator: Generator | None,
    n: int | None = None,
) -> dict[str, Any]:
    """What to put into the network for every tensor held: one value, or n of them, (n, *shape)."""
    weights: dict[str, Any] = {}
    if row is not None:
        assert q.flat is not None and chosen.row is not None
        shapes = {name: q.patches[name].shape for name in q.flat.names}
        picked = q.flat.pick(row, chosen.row, shapes)
        weights |= {name: _noisy(w, q.std_of(name), generator) for name, w in picked.items()}
    for name, own in held.own.items():
        if name in weights:
            continue
        if name in q.shared:
            value = own if n is None else own.expand(n, *own.shape)
            weights[name] = _noisy(value, q.shared_std, generator)
            continue
        z = chosen.by_unit[q.patches[name].unit]
        if q.per_example and n is None and isinstance(z, Tensor):
            weights[name] = _by_example(q, name, held, z, generator)
        else:
            weights[name] = _at(q, name, held, z, generator, n)
    for v, g in q.scales.items():
        if v in weights:
            scale = q.slots[g][0].get()
            weights[v], weights[g] = rescaled(weights[v], held.own[v], weights.get(g, scale), scale.shape)
    return weights


def _at(
    q: "Components", name: str, held: Held, chosen: Chosen, generator: Generator | None, n: int | None = None
) -> Tensor:
    """W for the assignments `chosen`, (*shape), or for n rows of them, (n, *shape)."""
    value = value_at(q.patches[name], q.centroids(name, held), chosen, n)
    return _noisy(value, q.std_of(name), generator)


def _by_example(q: "Components", name: str, held: Held, z: Tensor, generator: Generator | None) -> Any:
    """A choice per example, z (batch, size); tied weights and other layers take that of the first one."""
    if name not in q.by_example:
        return _at(q, name, held, z[0], generator)
    centroids = q.centroids(name, held)
    whole = q.assignment.scalar and not q.std
    rows = q.assignment.rows and not q.std

    def choose(results: list[Tensor]) -> Tensor:
        return pick(z.view(-1, *(1,) * (results[0].dim() - 1)), results)

    return ExampleWeight(
        held.own[name],
        len(z),
        lambda: _at(q, name, held, z[0], generator),
        lambda: _at(q, name, held, z, generator, len(z)),
        centroids if whole else None,
        choose if whole else None,
        (lambda: (z == 0) / q.probs[0]) if rows else None,
    )


def _noisy(value: Tensor, std: float | Tensor, generator: Generator | None) -> Tensor:
    """w + σ ε; at σ = 0 nothing is drawn."""
    if not isinstance(std, Tensor) and std == 0:
        return value
    return value + std * standard_normal(tuple(value.shape), value, generator)


def _batch_size(call: Call) -> int:
    """The number of examples: the first axis of the first tensor handed to the network."""
    for value in (*call.args, *call.kwargs.values()):
        if isinstance(value, Tensor) and value.dim():
            return value.shape[0]
    raise ValueError("per_example=True needs an input tensor with the batch in front; this call has none")
