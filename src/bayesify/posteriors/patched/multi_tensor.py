"""Many small patched tensors as one: a choice for all of them costs a handful of kernels."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bayesify.execution import compiling

if TYPE_CHECKING:
    from bayesify.posteriors.patched.components import Components

#: numbers of a tensor that joins; larger ones keep a graphics card busy by themselves, and a processor sooner
SMALL, SMALL_ON_CPU = 2**15, 2**9


class FlatComponents(nn.Module):
    """All components of the tensors in `sizes` in one row: M_1 … M_K of the first tensor, then of the second, …

    Entry i of a tensor of n entries whose row starts at o takes place o + i + n·z, z the assignment it belongs to.
    """

    place: Tensor
    stride: Tensor
    z_place: Tensor
    weight: Tensor

    def __init__(
        self,
        sizes: Mapping[str, int],
        z_places: Mapping[str, Tensor],
        weights: Mapping[str, Sequence[float]],
        dtype: torch.dtype,
    ) -> None:
        """sizes: entries of each tensor; z_places: for each entry, its assignment among all; weights: what the square
        of each component is multiplied with in the KL."""
        super().__init__()
        self.names = tuple(sizes)
        self.sizes = tuple(sizes.values())
        starts, start = [], 0
        for name in self.names:
            starts.append(start)
            start += sizes[name] * len(weights[name])
        entries = zip(starts, self.sizes, strict=True)
        constants = {
            "place": torch.cat([o + torch.arange(n) for o, n in entries]),
            "stride": torch.cat([torch.full((n,), n) for n in self.sizes]),
            "z_place": torch.cat([z_places[name] for name in self.names]),
            "weight": torch.tensor(
                [weight for n in self.names for weight in weights[n] for _ in range(sizes[n])], dtype=dtype
            ),
        }
        for key, value in constants.items():
            self.register_buffer(key, value, persistent=False)

    def join(self, own: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> Tensor:
        """The row of all components, with gradients to them."""
        return torch.cat([t[name].reshape(-1) for name in self.names for t in (own, others)])

    def squares(self, row: Tensor) -> Tensor:
        """Σ c_k ‖M_k‖² over all tensors."""
        return (self.weight * row.square()).sum()

    def pick(self, row: Tensor, z: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """The tensors for the assignments z (…, assignments): (…, *shape) each."""
        places = self.place + self.stride * z[..., self.z_place]  # (…, entries)
        picked = row[places]
        if compiling():
            picked = _InMemory.apply(picked)
        parts = picked.split(self.sizes, -1)
        lead = z.shape[:-1]
        return {name: part.view((*lead, *shapes[name])) for name, part in zip(self.names, parts, strict=True)}


def flatten(q: "Components") -> FlatComponents | None:
    """The small patched tensors, all of one type, as one."""
    places, start = {}, 0
    for unit, size in q.mixing.sizes.items():
        places[unit] = start + torch.arange(size)
        start += size
    own = {name: q.slots[name][0].get() for name in q.patches}
    most = SMALL_ON_CPU if q.device.type == "cpu" else SMALL
    small = {name: w.numel() for name, w in own.items() if w.numel() <= most}
    if len(small) < 2 or len({own[name].dtype for name in small}) > 1:
        return None
    z_places = {
        name: places[patch.unit].view(patch.z_shape).expand(patch.view).flatten()
        for name, patch in q.patches.items()
    }
    count = range(len(q.probs))
    weights = {name: [q.divergence.weight(q, name, k) for k in count] for name in small}
    dtype = torch.promote_types(own[next(iter(small))].dtype, torch.float32)
    return FlatComponents(small, z_places, weights, dtype)


class _InMemory(torch.autograd.Function):
    """The identity, written to memory by Inductor.

    Else it repeats the choice, with its chain of loads and its index checks, inside every kernel that uses a part.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.as_strided(value.shape, value.stride())  # a view of memory: Inductor must have some

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad
