"""The generalised Gauss-Newton matrix of a trained network over its training data, H = Σ_n J_nᵀ (∇² −log p) J_n.

With ∇² −log p = L Lᵀ it is Σ_n Σ_c (l_cᵀ J_n)ᵀ (l_cᵀ J_n) over the columns l_c of L. Of outputs with more than
MOST_COLUMNS numbers (of Kronecker factors MOST_OF_FACTORS) l_c = L ξ_c/√S with S random signs ξ_c, which has H as its
mean.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from bayesify.laws.noise import random_signs
from bayesify.likelihoods import Likelihood
from bayesify.passes.jacobian import flat
from bayesify.passes.layerwise import Factored, layer_products
from bayesify.passes.linear_uses import LinearUses
from bayesify.posteriors.base import TrainingData
from bayesify.posteriors.gaussian.blocks import Block, Dense, Diagonal, Kronecker
from bayesify.torch_internals import pytree
from bayesify.weights import as_call
from bayesify.weights.calls import Slots

MOST_COLUMNS, MOST_OF_FACTORS = 128, 32
MOST_DENSE = 10_000  # weights of a dense matrix
MOST_OF_BLOCK = 8192  # rows of a Kronecker factor


class Pass(NamedTuple):
    """What one pass found.

    names, blocks:  the curvature, by block
    log_prob:       log p(D | ŵ)
    square, number: Σ (y − f)² of a normal likelihood, and the number of targets; else 0
    reasons:        weight -> why it has no Kronecker factors
    """

    names: list[list[str]]
    blocks: list[Block]
    log_prob: float
    square: float
    number: int
    reasons: dict[str, str]


class Sums:
    """Sums over examples, by key; `times` turns them into those of all training data."""

    def __init__(self) -> None:
        self.found: dict[Any, Tensor] = {}

    def add(self, key: Any, value: Tensor) -> None:
        """Σ += value, in float64 where the device has it."""
        value = value.detach()
        value = value.double() if value.device.type != "mps" else value
        self.found[key] = self.found[key] + value if key in self.found else value


def curvature(net: nn.Module, slots: Slots, structure: str, data: TrainingData) -> Pass:
    """One pass in eval mode, structure "diag", "kron" or "dense".

    net:    with its trained weights, in eval mode; gradients are on for them
    slots:  of the random weights
    """
    weights = {name: places[0].get() for name, places in slots.items()}
    if structure == "dense":
        check_dense(weights)
    sums = Sums()
    reasons: dict[str, str] = {}
    log_prob = square = 0.0
    seen = count = 0
    generator = Generator().manual_seed(0)
    for x, y in data.batches():
        call = as_call(x)
        uses, output, numbers = _watched(net, weights, call, data.pick, structure == "kron")
        target = data.likelihood.matched(_detached(output), y, True)
        most = MOST_OF_FACTORS if structure == "kron" else MOST_COLUMNS
        columns = _columns(data.likelihood, _detached(output), target, numbers.detach(), most, generator)
        rest = weights
        if uses is not None:
            why = {name: _obstacle(uses, name) for name in weights}
            rest = {name: w for name, w in weights.items() if why[name]}
            reasons |= {name: why[name] for name in rest}
            _add_factors(sums, uses, rest, numbers, columns)
        _add_products(sums, net, slots, rest, call, data.pick, columns, structure)
        with torch.no_grad():
            log_prob += float(data.likelihood.per_example(_detached(output), target).sum())
        if data.likelihood.name == "normal":
            square += float((numbers.detach() - target.flatten(1)).double().square().sum())
            count += target.numel()
        seen += len(numbers)
    if not seen:
        raise ValueError("train_loader is empty: Laplace needs a pass over the training data")
    share = 1.0 if data.num_data is None else data.num_data / seen
    names, blocks = _blocks(sums, weights, structure, share)
    return Pass(names, blocks, share * log_prob, share * square, round(share * count), reasons)


def check_dense(weights: Mapping[str, Tensor]) -> None:
    """Raise where a dense matrix would be too large."""
    total = sum(w.numel() for w in weights.values())
    if total > MOST_DENSE:
        raise ValueError(
            f"a dense curvature of {total:,} weights has {total:,}² entries; at most {MOST_DENSE:,} weights are "
            f"accepted: use structure='kron', or fewer weights with where="
        )


def _watched(
    net: nn.Module, weights: Mapping[str, Tensor], call: Any, pick: Any, watch: bool
) -> tuple[LinearUses | None, Any, Tensor]:
    """(uses of weights, the prediction, its numbers with a graph); no uses and no graph where they are not wanted."""
    if not watch:
        output = pick(net(*call.args, **call.kwargs))
        return None, output, flat(output)
    uses = LinearUses(weights)
    with torch.enable_grad():
        with uses:
            output = pick(net(*call.args, **call.kwargs))
        return uses, output, flat(output)


def _obstacle(uses: LinearUses, name: str) -> str:
    """Why a weight has no Kronecker factors; "" where it has."""
    mine = [use for use in uses.uses if name in (use.weight, use.bias)]
    if name in uses.other:
        return "it meets another operation than a linear one"
    if not mine:
        return "the network does not use it"
    sizes = [n for use in mine if use.weight == name for n in (use.inputs.shape[-1], use.outputs)]
    return (
        f"it has more than {MOST_OF_BLOCK} rows or columns" if max(sizes, default=0) > MOST_OF_BLOCK else ""
    )


def _detached(output: Any) -> Any:
    return pytree.tree_map(lambda t: t.detach(), output)


def _columns(
    likelihood: Likelihood, output: Any, target: Tensor, numbers: Tensor, most: int, generator: Generator
) -> Tensor:
    """l_c of every example: (columns, batch, numbers)."""
    batch, size = numbers.shape
    if size <= most:
        xi = torch.eye(size, dtype=numbers.dtype, device=numbers.device)[:, None].expand(size, batch, size)
    else:
        xi = random_signs((most, batch, size), numbers, generator) / most**0.5
    with torch.no_grad():
        return likelihood.curvature_root(output, target, xi)


def _add_factors(
    sums: Sums, uses: LinearUses, rest: Mapping[str, Any], numbers: Tensor, columns: Tensor
) -> None:
    """Σ x xᵀ of what enters each weight, Σ g gᵀ of the gradients by what leaves it, and the number of rows."""
    mine = [use for use in uses.uses if {use.weight, use.bias} - {None} - set(rest)]
    for use in mine:
        x = use.inputs
        if use.weight is not None and use.weight not in rest:
            sums.add((use.weight, "in"), x.mT @ x)
            sums.add((use.weight, "rows"), torch.tensor(float(x.shape[1])))
            sums.found[use.weight, "transposed"] = torch.tensor(use.transposed)
    options: dict[str, Any] = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    for column in columns if mine else ():
        gradients = torch.autograd.grad(numbers, [use.output for use in mine], column, **options)
        for use, gradient in zip(mine, gradients, strict=True):
            g = use.rows(gradient)  # (groups, rows, outputs)
            if use.weight is not None and use.weight not in rest:
                sums.add((use.weight, "out"), g.mT @ g)
            if use.bias is not None and use.bias not in rest:
                joined = g.movedim(0, 1).flatten(1)  # (rows, outputs of all groups)
                if joined.shape[1] <= MOST_OF_BLOCK:
                    sums.add((use.bias, "dense"), joined.mT @ joined)
                else:
                    sums.add((use.bias, "diag"), joined.square().sum(0))


def _add_products(
    sums: Sums,
    net: nn.Module,
    slots: Slots,
    weights: Mapping[str, Tensor],
    call: Any,
    pick: Any,
    columns: Tensor,
    structure: str,
) -> None:
    """Σ (l_cᵀ J)² of each weight, or Σ (l_cᵀ J)ᵀ (l_cᵀ J) of all together."""
    if not weights:
        return
    mine = {name: slots[name] for name in weights}
    fixed = {name: w.detach() for name, w in weights.items()}
    for _, products in layer_products(net, mine, fixed, call, pick, columns.movedim(0, 1)):
        if structure == "dense":
            whole = [
                p.dense() if isinstance(p, Factored) else p for p in (products[name] for name in weights)
            ]
            rows = torch.cat([part.flatten(2) for part in whole], 2).flatten(0, 1)
            sums.add("dense", rows.mT @ rows)
            continue
        for name, value in products.items():
            squares = value.squares() if isinstance(value, Factored) else value.square().sum((0, 1))
            sums.add((name, "diag"), squares)


def _blocks(
    sums: Sums, weights: Mapping[str, Tensor], structure: str, share: float
) -> tuple[list[list[str]], list[Block]]:
    """Sums over the examples seen as the curvature of all."""
    first = next(iter(weights.values()))
    if structure == "dense":
        shapes = [w.shape for w in weights.values()]
        return [[*weights]], [Dense.of(shapes, share * sums.found["dense"], first.dtype)]
    names, blocks = [], []
    for name, w in weights.items():
        names.append([name])
        blocks.append(_block(sums.found, name, w, share))
    return names, blocks


def _block(found: Mapping[Any, Tensor], name: str, w: Tensor, share: float) -> Block:
    if (name, "out") in found:
        left, right = found[name, "out"] / found[name, "rows"], share * found[name, "in"]
        if found[name, "transposed"]:
            left, right = right, left
        return Kronecker.of(w.shape, left, right, w.dtype)
    if (name, "dense") in found:
        return Dense.of([w.shape], share * found[name, "dense"], w.dtype)
    return Diagonal((share * found[name, "diag"]).to(w.dtype))
