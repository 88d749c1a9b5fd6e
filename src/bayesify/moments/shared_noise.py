"""The noise of a weight, which all its uses share: Σ σ² A_c A_d, A = Σ over uses of ∂(mean output)/∂(mean weight)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.execution import exporting
from bayesify.moments import opposite
from bayesify.moments.layouts import Layout, Unknown
from bayesify.moments.opposite import settled
from bayesify.moments.rules.linear import PLAIN_CONVOLUTIONS
from bayesify.moments.rules.pool import per_dimension

AT_ONCE = 2**26  # numbers of A, for which examples are taken in groups
PIECE = 1024  # numbers of a row that are multiplied and summed together
TRAFFIC = 64  # multiplications in the time in which a number of A is written and read


def pairs(rows: Tensor, others: Tensor) -> Tensor:
    """(batch, seeds, n) twice -> (batch, seeds, seeds): Σ_n of the products of every pair of rows.

    In pieces, of which a GPU takes all at once: seeds are few and n may be 100,000.
    """
    if rows.shape[1] == 1:
        return (rows * others).sum(-1, keepdim=True, dtype=precise(rows.dtype))
    n = rows.shape[-1]
    pieces = next((p for p in (64, 32, 16, 8, 4, 2) if n % p == 0 and n // p >= PIECE), 1)
    if pieces == 1 or rows.device.type not in opposite.PARALLEL:
        return rows @ others.mT
    # as three dimensions before they are transposed: of four a product would copy both, one of them transposed
    cut, other = (t.unflatten(-1, (pieces, -1)).transpose(1, 2).flatten(0, 1) for t in (rows, others))
    met = torch.bmm(cut, cut.mT if rows is others else other.mT)
    return met.unflatten(0, (-1, pieces)).sum(1, dtype=precise(rows.dtype))


def weighted_pairs(rows: Tensor, var: Tensor) -> Tensor:
    """Σ_n r_n a_sn a_tn of every pair of rows; rows (batch, seeds, n), var (batch or 1, 1, n)."""
    var = var.to(rows.dtype)
    if rows.requires_grad or var.requires_grad:  # a root has no derivative at 0
        return pairs(rows * var, rows)
    rows = rows * var.clamp_min(0).sqrt()
    return pairs(rows, rows)


def precise(dtype: torch.dtype) -> torch.dtype:
    """For sums of numbers of `dtype`."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def for_seeds(value: Tensor, delta: Tensor) -> Tensor:
    """`value` as it meets δ: in its precision, and computed once where seeds are many."""
    value = value.to(delta.dtype)
    return settled(value) if len(delta) > 1 else value


class Use(ABC):
    """One use of a weight: its mean, its variance, the mean of what came out, and what tells it from others."""

    def __init__(self, weight: Tensor, var: Tensor, mean: Tensor, key: Tensor | None = None) -> None:
        self.key = weight if key is None else key
        self.weight = weight
        self.var = var
        self.mean = mean

    @abstractmethod
    def gram_of(self, used: Sequence[tuple[Any, Tensor, Layout]]) -> Tensor:
        """(batch, seeds, seeds) of all uses of this weight, each with its δ (seeds, batch, …)."""


class Elementwise(Use):
    """z = w ∘ x or z = w + x, with w spread over the other dimensions; x is 1 for a sum."""

    def __init__(
        self, weight: Tensor, var: Tensor, mean: Tensor, factor: Any = 1.0, key: Tensor | None = None
    ) -> None:
        super().__init__(weight, var, mean, key)
        self.factor = factor

    def rows(self, delta: Tensor, layout: Layout) -> Tensor:
        """A (seeds, batch, n)."""
        factor = self.factor
        if isinstance(factor, Tensor):
            delta = delta * layout.of_values(for_seeds(factor, delta).expand(self.mean.shape))
        else:
            delta = delta * factor
        # the weight's shape beside that of z, the examples' dimension first
        shape = (1,) * (self.mean.dim() - self.weight.dim()) + tuple(self.weight.shape)
        shape = (shape[layout.dim], *shape[: layout.dim], *shape[layout.dim + 1 :])
        split = delta.dim() - 1 - self.mean.dim()  # 1 where examples are part of a dimension
        spread = [2 + split + i - 1 for i, size in enumerate(shape) if i and size == 1]
        spread += [2] if split else []
        rows = delta.sum(spread) if spread else delta
        return rows.reshape(*rows.shape[:2], -1)

    def gram_of(self, used: Sequence[tuple[Any, Tensor, Layout]]) -> Tensor:
        rows = sum(use.rows(delta, layout) for use, delta, layout in used)
        rows = rows.transpose(0, 1)  # (batch, seeds, n)
        return weighted_pairs(rows, self.var.reshape(1, 1, -1))


class Positions(NamedTuple):
    """δ (seeds, batch, groups, positions, k) and inputs x (batch, groups, positions, l) of a linear map."""

    delta: Tensor
    x: Tensor


class Linear(Use):
    """y = w·x at every position: A_kl = Σ_p δ_kp x_lp."""

    def __init__(self, weight: Tensor, var: Tensor, mean: Tensor, x: Tensor) -> None:
        super().__init__(weight, var, mean)
        self.x = x

    def positions(self, delta: Tensor, layout: Layout) -> Positions:
        x = layout.of_values(self.x).to(delta.dtype)
        return Positions(
            delta.reshape(*delta.shape[:2], 1, -1, delta.shape[-1]),
            x.reshape(layout.batch, 1, -1, x.shape[-1]),
        )

    def variances(self) -> Tensor:
        """(groups, k, l)."""
        return self.var[None]

    def energies(self, at: Positions) -> Tensor:
        """(batch, groups, positions, k): Σ_l σ²_kl x_lp²."""
        return at.x.square() @ self.variances().to(at.x.dtype).mT

    def gram_of(self, used: Sequence[tuple[Any, Tensor, Layout]]) -> Tensor:
        parts = [use.positions(delta, layout) for use, delta, layout in used]
        delta = torch.cat([part.delta for part in parts], 3) if len(parts) > 1 else parts[0].delta
        x = torch.cat([part.x for part in parts], 2) if len(parts) > 1 else parts[0].x
        var = self.variances().to(delta.dtype)
        if x.shape[2] == 1:  # A has rank one
            by_entry = torch.einsum("gkl,bgpl->bgpk", var, x.square())
            delta = delta.transpose(0, 1)  # (batch, seeds, groups, positions, k)
            return weighted_pairs(delta.flatten(2), by_entry[:, None].flatten(2))
        seeds, (positions, inputs), outputs = len(delta), x.shape[2:], delta.shape[-1]
        by_rows = seeds * outputs * inputs * (positions + TRAFFIC)
        by_likeness = positions**2 * (inputs + seeds * outputs) + outputs * inputs * positions
        if by_likeness < by_rows:
            energies = [use.energies(part) for (use, *_), part in zip(used, parts, strict=True)]
            energy = torch.cat(energies, 2) if len(parts) > 1 else energies[0]
            return _gram_by_likeness(delta, x, var, energy)
        if exporting():  # a program for batches of every size takes them as they come
            return _gram(delta, x, var)
        size = max(1, AT_ONCE // max(seeds * var.numel(), 1))
        parts_of_batch = zip(delta.split(size, 1), x.split(size), strict=True)
        return torch.cat([_gram(d, each, var) for d, each in parts_of_batch])


class Convolution(Linear):
    """The same of patches. Of a transposed one, x and δ change places."""

    def __init__(
        self, weight: Tensor, var: Tensor, mean: Tensor, x: Tensor, geometry: Any, transposed: bool
    ) -> None:
        super().__init__(weight, var, mean, x)
        self.geometry = geometry  # stride, padding, dilation, groups
        self.transposed = transposed

    def positions(self, delta: Tensor, layout: Layout) -> Positions:
        kernel, groups, images = self.weight.shape[2:], self.geometry[3], for_seeds(self.x, delta)
        seeds, each = delta.shape[0], self.x.shape[0] // layout.batch  # images that an example consists of
        delta = delta.reshape(
            -1, *delta.shape[delta.dim() - self.x.dim() + 1 :]
        )  # (seeds · images, channels, …)
        if self.transposed:  # w (inputs, outputs / groups, …)
            d = patches(delta, kernel, self.geometry)  # (…, groups, positions, l)
            x = images.flatten(2).unflatten(1, (groups, -1)).mT
            d = d[:, :, : x.shape[2]]
        else:
            d = delta.flatten(2).unflatten(1, (groups, -1)).mT  # (…, groups, positions, k)
            x = patches(images, kernel, self.geometry)
        d, x = d.unflatten(0, (seeds, layout.batch, each)), x.unflatten(0, (layout.batch, each))
        return Positions(d.transpose(2, 3).flatten(3, 4), x.transpose(1, 2).flatten(2, 3))

    def variances(self) -> Tensor:
        var = self.var.flatten(2).mT.flatten(1).unflatten(0, (self.geometry[3], -1))  # (groups, k, l)
        return var.mT if self.transposed else var

    def energies(self, at: Positions) -> Tensor:
        if self.transposed or exporting():  # whose batches have any size, which torch would ask for here
            return super().energies(at)
        images, batch = for_seeds(self.x, at.delta), len(at.x)  # spares the squares of all patches
        convolve = PLAIN_CONVOLUTIONS[self.weight.dim() - 3]
        y = convolve(images.square(), self.var.to(images.dtype), None, *self.geometry)
        y = y.flatten(2).unflatten(1, (self.geometry[3], -1)).mT  # (batch · images, groups, positions, k)
        return y.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)


class Contraction(Use):
    """y = einsum("x,w->y", x, w): A is the derivative by w of every example by itself.

    terms: the letters of x, w and y
    """

    def __init__(
        self, weight: Tensor, var: Tensor, mean: Tensor, x: Tensor, terms: tuple[str, str, str]
    ) -> None:
        super().__init__(weight, var, mean)
        self.x = x
        self.terms = terms

    def rows(self, delta: Tensor, layout: Layout) -> Tensor:
        """(batch, seeds, n)."""
        x, w, y = self.terms
        example = y[layout.dim]
        if delta.dim() > len(y) + 1 or example not in x or example in w:
            raise Unknown(
                f"the covariance of the outputs does not follow the weights into einsum({x},{w}->{y})"
            )
        inputs = self.x.to(delta.dtype)
        found = torch.einsum(f"Z{example}{y.replace(example, '')},{x}->{example}Z{w}", delta, inputs)
        return found.flatten(2)

    def gram_of(self, used: Sequence[tuple[Any, Tensor, Layout]]) -> Tensor:
        rows = sum(use.rows(delta, layout) for use, delta, layout in used)
        return weighted_pairs(rows, self.var.reshape(1, 1, -1))


class Lookup(Use):
    """Rows of a table: places with the same index share their noise."""

    def __init__(self, weight: Tensor, var: Tensor, mean: Tensor, indices: Tensor) -> None:
        super().__init__(weight, var, mean)
        self.indices = indices

    def gram_of(self, used: Sequence[tuple[Any, Tensor, Layout]]) -> Tensor:
        found = [
            (
                delta.reshape(*delta.shape[:2], -1, delta.shape[-1]),
                at.of_values(use.indices).reshape(at.batch, -1),
            )
            for use, delta, at in used
        ]
        delta = torch.cat([d for d, _ in found], 2)  # (seeds, batch, positions, features)
        indices = torch.cat([i for _, i in found], 1)  # (batch, positions)
        same = (indices[:, :, None] == indices[:, None, :]).to(delta.dtype)
        scaled = (delta * self.var[indices].to(delta.dtype).sqrt()).transpose(
            0, 1
        )  # (batch, seeds, positions, features)
        together = torch.einsum("bpq,bsqf->bspf", same, scaled)
        return pairs(scaled.flatten(2), together.flatten(2))


def _gram(delta: Tensor, x: Tensor, var: Tensor) -> Tensor:
    seeds, outputs = len(delta), delta.shape[-1]
    columns = delta.permute(1, 2, 3, 0, 4).flatten(
        3
    )  # (batch, groups, positions, seeds · k), as they lie in memory
    rows = (columns.mT @ x).unflatten(2, (seeds, outputs)).transpose(1, 2)  # (batch, seeds, groups, k, l)
    return weighted_pairs(rows.flatten(2), var.reshape(1, 1, -1))


def _gram_by_likeness(delta: Tensor, x: Tensor, var: Tensor, energy: Tensor) -> Tensor:
    """The same where positions p, q are few: Σ_kpq δ_kp δ_kq G_kpq, G_kpq = Σ_l σ²_kl x_lp x_lq.

    G is taken as s_kp κ_pq s_kq, s² = `energy` (batch, groups, p, k): its diagonal is exact, and κ, the cosine of the
    inputs at p and q weighted by the mean of σ² over the outputs k, stands for all of them. Exact where σ² is a factor
    of k times a factor of l.
    """
    weighted = x * var.mean(1)[:, None].sqrt()
    alike = weighted @ weighted.mT  # (batch, groups, p, q)
    own = energy.mean(-1, keepdim=True)
    tiny = torch.finfo(own.dtype).tiny ** 0.5
    scale = ((energy + tiny) / (own + tiny)).sqrt()  # (batch, groups, p, k)
    if exporting():  # torch asks for the number of examples where dimensions are joined as below
        delta = (delta * scale).transpose(0, 1)  # (batch, seeds, groups, p, k)
        return pairs(delta.flatten(2), (alike[:, None] @ delta).flatten(2))
    # (batch, groups, p, seeds, k)
    delta = (delta.permute(1, 2, 3, 0, 4) * scale[..., None, :]).contiguous()
    met = (alike @ delta.flatten(3)).view_as(delta)
    return (
        pairs(delta.flatten(0, 2), met.flatten(0, 2))
        .unflatten(0, alike.shape[:3])
        .sum((1, 2), dtype=precise(x.dtype))
    )


def patches(x: Tensor, kernel: torch.Size, geometry: Any) -> Tensor:
    """(batch, channels, *spatial) -> (batch, groups, positions, patch), a patch by offsets, then channels."""
    dims = len(kernel)
    stride, dilation = (per_dimension(value, dims) for value in (geometry[0], geometry[2]))
    sides = [side for pad in reversed(_padding(geometry[1], kernel, dilation)) for side in pad]
    x = (F.pad(x, sides) if any(sides) else x).movedim(1, -1)
    for d in range(1, dims + 1):  # slices, whose derivative is a sum of slices, where that of unfold scatters
        step, reach = stride[d - 1], dilation[d - 1] * (kernel[d - 1] - 1)
        starts = range(0, reach + 1, dilation[d - 1])
        span = (x.shape[d] - reach - 1) // step * step + 1
        shifted = [x.transpose(0, d)[start : start + span : step].transpose(0, d) for start in starts]
        x = torch.stack(shifted, -2)  # (batch, *positions, *offsets, channels)
    x = x.flatten(1, dims).flatten(2, -2)  # (batch, positions, offsets, channels)
    return x.unflatten(-1, (geometry[3], -1)).movedim(3, 1).flatten(3)


def _padding(padding: Any, kernel: torch.Size, dilation: tuple[int, ...]) -> list[tuple[int, int]]:
    """What is added before and behind, along every dimension."""
    if padding == "same":
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(pad, pad) for pad in per_dimension(0 if padding == "valid" else padding, len(kernel))]
