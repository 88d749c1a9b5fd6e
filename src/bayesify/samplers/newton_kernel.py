"""The step of `VariationalNewton` as one Triton kernel: every number is read once and written once."""

# mypy: disable-error-code="no-untyped-def"

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from bayesify.samplers.fused import LANES, Tables

if TYPE_CHECKING:
    from bayesify.samplers.variational_newton import Numbers


def launch(
    tables: Tables,
    rows: list[list[Tensor]],
    z: "Numbers",
    num_members: int,
    found: Tensor | None,
    grad_scale: Tensor | None,
) -> None:
    """`newton_step_` of all rows, of equal length, in place."""
    placed = [[row[0], row[1], *(_laid_out(t, row[0]) for t in row[2:])] for row in rows]
    columns = [t for column in zip(*placed, strict=True) for t in column]  # all means, all momenta, …
    any_number = placed[0][0]
    with torch.cuda.device(any_number.device):
        _kernel[(len(tables.programs),)](
            tables.programs,
            tables.sizes,
            tables.addresses(columns),
            len(rows),
            any_number if found is None else found,
            any_number if grad_scale is None else grad_scale,
            float(num_members),
            z.rate,
            1 - z.memory,
            z.correction,
            z.forget,
            float(z.num_data),
            float(z.weight_decay),
            float(z.centre),
            float(z.start),
            0.0 if z.clip is None else float(z.clip),
            random=len(rows[0]) > 3,
            clipped=z.clip is not None,
            skips=found is not None,
            scaled=grad_scale is not None,
            size_of_program=4 * LANES,
        )


def _laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """With its numbers in the order in which those of `like` lie."""
    same = (tensor.is_contiguous() and like.is_contiguous()) or tensor.stride() == like.stride()
    return tensor if same else torch.empty_like(like).copy_(tensor)


@triton.jit
def _log1p(x):
    """log(1 + x), with the digits that 1 + x loses given back."""
    y = 1.0 + x
    return tl.where(y == 1.0, x, tl.log(y) * (x / tl.where(y == 1.0, 1.0, y - 1.0)))


@triton.jit(do_not_specialize=["count"])
def _kernel(
    programs,
    sizes,
    addresses,
    count,
    found,
    grad_scale,
    scale,
    rate,
    take,
    correction,
    forget,
    num_data,
    weight_decay,
    centre,
    start,
    clip,
    random: tl.constexpr,
    clipped: tl.constexpr,
    skips: tl.constexpr,
    scaled: tl.constexpr,
    size_of_program: tl.constexpr,
):
    """One program for so many entries of one tensor; `addresses` has a row for each of means, ḡ, gradients, …"""
    row = programs + 3 * tl.program_id(0)
    owner = tl.load(row)
    inside = tl.load(row + 1) + tl.arange(0, size_of_program)
    size = tl.load(sizes + owner)
    if skips:
        size = tl.where(tl.load(found) != 0, 0, size)  # nothing is read or written
    mask = inside < size
    if scaled:
        scale = scale / tl.load(grad_scale)
    means = tl.load(addresses + owner).to(tl.pointer_type(tl.float32)) + inside
    momenta = tl.load(addresses + count + owner).to(tl.pointer_type(tl.float32)) + inside
    gradients = tl.load(addresses + 2 * count + owner).to(tl.pointer_type(tl.float32)) + inside
    mean = tl.load(means, mask=mask, other=0.0)
    momentum = tl.load(momenta, mask=mask, other=0.0)
    momentum += take * (tl.load(gradients, mask=mask, other=0.0) * scale - momentum)
    tl.store(momenta, momentum, mask=mask)
    move = momentum * correction
    if random:
        log_stds = tl.load(addresses + 3 * count + owner).to(tl.pointer_type(tl.float32)) + inside
        by_log_stds = tl.load(addresses + 4 * count + owner).to(tl.pointer_type(tl.float32)) + inside
        log_std = tl.load(log_stds, mask=mask, other=0.0)
        by_log_std = tl.load(by_log_stds, mask=mask, other=0.0)
        inverse = num_data * tl.exp(2.0 * log_std)  # 1/(h + δ)
        u = forget * (weight_decay * inverse - 1.0 + by_log_std * (num_data * scale))
        growth = u + 0.5 * u * u  # of h + δ, less 1
        tl.store(log_stds, log_std - 0.5 * _log1p(growth), mask=mask)
        move = start * (move + weight_decay * (mean - centre)) * inverse / (1.0 + growth)
    if clipped:
        move = tl.minimum(tl.maximum(move, -clip), clip)
    tl.store(means, mean - rate * move, mask=mask)
