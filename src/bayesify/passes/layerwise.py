"""Products of every example's Jacobian layer by layer, as what enters and what comes back, where that is enough.

A linear operation's weight has rᵀ J = Σ_p g_p x_pᵀ over the positions p of an example, which need not be formed to be
multiplied. Weights that meet another operation, or whose examples lie elsewhere than in front, get it as it is.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bayesify.passes.jacobian import NUMBERS, examples, flat, outputs, row_products
from bayesify.passes.linear_uses import LinearUses, Use
from bayesify.weights import Call
from bayesify.weights.calls import Slots


class Factored(NamedTuple):
    """rᵀ J of one weight matrix, Σ_p g_p x_pᵀ in every group.

    inputs:      (batch, groups, positions, inputs)
    gradients:   (rows, batch, groups, positions, outputs)
    shape:       of the weight
    transposed:  it is (inputs, outputs), not (outputs, inputs)
    """

    inputs: Tensor
    gradients: Tensor
    shape: torch.Size
    transposed: bool

    def turned(self, left: Tensor, right: Tensor) -> "Factored":
        """Qᵀ_L (rᵀ J) Q_R, with (groups, n, n) for the weight's rows and columns."""
        out, into = (right, left) if self.transposed else (left, right)
        shape = torch.Size((len(left), left.shape[1], right.shape[1]))
        return Factored(self.inputs @ into, self.gradients @ out, shape, self.transposed)

    def dense(self) -> Tensor:
        """rᵀ J, (batch, rows, *shape)."""
        found = torch.einsum("rbgpo,bgpi->brgoi", self.gradients, self.inputs)
        found = found.mT if self.transposed else found
        return found.reshape(*found.shape[:2], *self.shape)

    def between(self, middle: Tensor) -> Tensor:
        """(rᵀ J) diag(middle) (rᵀ J)ᵀ, middle as the weight: (batch, rows, rows)."""
        if self.inputs.shape[2] == 1:
            spread = self._as_matrix(middle)  # (groups, outputs, inputs)
            per_output = torch.einsum("bgi,goi->bgo", self.inputs[:, :, 0].square(), spread)
            g = self.gradients[:, :, :, 0]  # (rows, batch, groups, outputs)
            return torch.einsum("rbgo,bgo,sbgo->brs", g, per_output, g)
        parts = [(j * middle.flatten()) @ j.mT for j in self._flat_parts()]
        return torch.cat(parts)

    def squares(self) -> Tensor:
        """Σ (rᵀ J)² over examples and rows, of the shape of the weight."""
        if self.inputs.shape[2] == 1:
            g = self.gradients[:, :, :, 0].square().sum(0)  # (batch, groups, outputs)
            found = torch.einsum("bgo,bgi->goi", g, self.inputs[:, :, 0].square())
            return (found.mT if self.transposed else found).reshape(self.shape)
        return torch.stack([j.square().sum((0, 1)) for j in self._flat_parts()]).sum(0).reshape(self.shape)

    def _as_matrix(self, middle: Tensor) -> Tensor:
        groups, (rows, columns) = self.inputs.shape[1], (self.gradients.shape[-1], self.inputs.shape[-1])
        if self.transposed:
            return middle.reshape(groups, columns, rows).mT
        return middle.reshape(groups, rows, columns)

    def _flat_parts(self) -> Iterator[Tensor]:
        """rᵀ J for some examples at a time, (examples, rows, numbers)."""
        step = max(1, NUMBERS // (4 * len(self.gradients) * self.shape.numel()))
        for start in range(0, len(self.inputs), step):
            part = slice(start, start + step)
            one = self._replace(inputs=self.inputs[part], gradients=self.gradients[:, part])
            yield one.dense().flatten(2)


def between(jacobian: Tensor | Factored, middle: Tensor) -> Tensor:
    """J diag(middle) Jᵀ, (batch, rows, rows), of J as it is or factored."""
    if isinstance(jacobian, Factored):
        return jacobian.between(middle)
    rows = jacobian.flatten(2)
    return (rows * middle.flatten()) @ rows.mT


def layer_products(
    net: nn.Module,
    slots: Slots,
    weights: Mapping[str, Tensor],
    call: Call,
    pick: Callable[[Any], Any],
    rows: Tensor,
) -> Iterator[tuple[slice, dict[str, Tensor | Factored]]]:
    """As `row_products`, with `Factored` for the weight matrices of linear operations."""
    start, step = 0, len(rows)
    while start < len(rows):
        part = slice(start, min(start + step, len(rows)))
        mine, own = examples(call, part, len(rows)), rows[part]
        leaves = {name: w.detach().requires_grad_() for name, w in weights.items()}
        uses = LinearUses(leaves)
        with torch.enable_grad():
            with uses:
                output = outputs(net, slots, leaves, mine, pick)
            numbers = flat(output)
        size = own.shape[1] * sum(use.output.numel() for use in uses.uses)
        if size > NUMBERS and len(own) > 1:  # as many examples as have room
            step = max(1, min(len(own) // 2, len(own) * NUMBERS // size))
            continue
        found: dict[str, Tensor | Factored] = dict(_factored(uses, numbers, own, leaves))
        rest = {name: w for name, w in weights.items() if name not in found}
        if rest:
            others = {name: slots[name] for name in rest}
            parts = [products for _, products in row_products(net, others, rest, mine, pick, own)]
            found |= {name: torch.cat([p[name] for p in parts]) for name in rest}
        yield part, found
        start = part.stop


def _factored(
    uses: LinearUses, numbers: Tensor, rows: Tensor, weights: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor | Factored]]:
    """Of the weights and biases that are used once, by linear operations whose rows go example by example."""
    names = [name for use in uses.uses for name in (use.weight, use.bias) if name is not None]
    mine = [
        use
        for use in uses.uses
        if any(n and n not in uses.other and names.count(n) == 1 for n in (use.weight, use.bias))
    ]
    mine = _by_example(mine, numbers)
    if not mine:
        return
    options: dict[str, Any] = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    places = [use.output for use in mine]
    each = [torch.autograd.grad(numbers, places, rows[:, r], **options) for r in range(rows.shape[1])]
    batch = len(numbers)
    for i, use in enumerate(mine):
        g = torch.stack(
            [use.rows(gradients[i]) for gradients in each]
        )  # (rows, groups, all positions, outputs)
        g = g.unflatten(2, (batch, -1)).transpose(1, 2)  # (rows, batch, groups, positions, outputs)
        x = use.inputs.unflatten(1, (batch, -1)).transpose(0, 1)  # (batch, groups, positions, inputs)
        if use.weight is not None and use.weight not in uses.other and names.count(use.weight) == 1:
            yield use.weight, Factored(x, g, weights[use.weight].shape, use.transposed)
        if use.bias is not None and use.bias not in uses.other and names.count(use.bias) == 1:
            yield use.bias, g.sum(3).flatten(2).transpose(0, 1)


def _by_example(uses: list[Use], numbers: Tensor) -> list[Use]:
    """Those whose rows are grouped by example, in order: the output of the first and of the last example depends on no
    other rows than the first and the last ones."""
    batch = len(numbers)
    uses = [use for use in uses if use.inputs.shape[1] % batch == 0]
    if batch == 1 or not uses:
        return uses
    for place in (0, batch - 1):
        cotangent = torch.zeros_like(numbers)
        cotangent[place] = torch.linspace(
            1.0, 2.0, numbers.shape[1], dtype=numbers.dtype, device=numbers.device
        )
        gradients = torch.autograd.grad(
            numbers,
            [u.output for u in uses],
            cotangent,
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        kept = []
        for use, gradient in zip(uses, gradients, strict=True):
            grouped = use.rows(gradient).unflatten(1, (batch, -1)).abs().amax((0, 2, 3))  # (batch,)
            if grouped.sum() == grouped[place]:
                kept.append(use)
        uses = kept
        if not uses:
            break
    return uses
