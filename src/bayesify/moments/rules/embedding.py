"""Rows of a table, and sums and means of them."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.missing import not_covered
from bayesify.moments.registry import rule
from bayesify.moments.rules.shape import moved
from bayesify.moments.values import Moments


@rule(F.embedding)
def embedding(
    indices: Tensor,
    weight: Moments,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Moments:
    """Rows of the table: mean and variance of the row."""
    if max_norm is not None:
        raise NotImplementedError(not_covered(F.embedding, "max_norm"))
    rest = (padding_idx, None, norm_type, scale_grad_by_freq, sparse)
    return moved(lambda table: F.embedding(indices, table, *rest), weight)


@rule(F.embedding_bag)
def embedding_bag(
    indices: Tensor,
    weight: Any,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Moments:
    """Σ_i a_i w_i over the rows of a bag, a_i = 1 or as given:  Var = Σ_i a_i A_i Var w_i, A_i = Σ_j a_j of that row.

    A row that comes twice counts as 2w. A mean divides by the number of rows n, its variance by n².
    """
    if mode == "max" or max_norm is not None:
        case = "max_norm" if max_norm is not None else "mode='max'"
        raise NotImplementedError(not_covered(F.embedding_bag, case))
    if not isinstance(weight, Moments):
        raise NotImplementedError(not_covered(F.embedding_bag, "a table that is not random"))
    if isinstance(per_sample_weights, Moments):
        raise NotImplementedError(not_covered(F.embedding_bag, "random per_sample_weights"))

    def bags(table: Tensor, how: str, shares: Tensor | None) -> Tensor:
        ends: dict[str, Any] = {"include_last_offset": include_last_offset, "padding_idx": padding_idx}
        return F.embedding_bag(indices, table, offsets, mode=how, per_sample_weights=shares, **ends)

    mean = bags(weight.mean, mode, per_sample_weights)
    own = weight.var.new_ones(indices.shape) if per_sample_weights is None else per_sample_weights
    var = bags(weight.var, "sum", own * _of_same_row(indices, offsets, own, len(weight.var)))
    if mode == "mean":
        count = bags(weight.var.new_ones(len(weight.var), 1), "sum", None)
        var = var / count.clamp_min(1).square()
    return Moments(mean, var)


def _of_same_row(indices: Tensor, offsets: Tensor | None, shares: Tensor, rows: int) -> Tensor:
    """For each place the sum of `shares` over the places in its bag with the same row."""
    places = torch.arange(indices.numel(), device=indices.device)
    if offsets is None:
        bag = places // max(indices.shape[-1], 1)
    else:
        bag = torch.searchsorted(offsets.to(places.dtype), places, right=True)
    key, order = (bag * rows + indices.flatten()).sort()
    number = key.diff(prepend=key[:1]).ne(0).long().cumsum(0)  # equal keys share one
    place = torch.empty_like(number).scatter(0, order, number)
    sums = torch.zeros_like(shares.flatten()).index_add(0, place, shares.flatten())
    return sums[place].view(shares.shape)
