"""First layers move along the axes of their inputs: features with a mean, or alike, would tie weights together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from bayesify import torch_internals as internals
from bayesify.samplers.bucket import precise

if TYPE_CHECKING:
    from bayesify.samplers.base import Sampler

#: weight -> the bias beside it, if any; E x̃ x̃ᵀ of its inputs, x̃ = (x, 1) with a bias; examples that is a mean of
Moments = Mapping[Tensor, tuple[Tensor | None, Tensor, int]]
AXES, SEEN, COUNT = "axes", "axes_moments", "axes_count"  # states of a weight: A; what it is made of, before
LEAST = 1e-7  # of the largest, for axes along which inputs do not differ
WORTH = 0.1  # the curvature that an example adds along an axis of mean square 1, about that of classes; a prior adds 1
ENOUGH = 4  # times as many examples as axes


class Layer(NamedTuple):
    """A weight (…, outputs, inputs, *kernel), the bias (…, outputs) beside it, and A (…, n, n), n inputs and bias."""

    weight: Tensor
    bias: Tensor | None
    axes: Tensor

    def join(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Two that are of their shapes, as (…, outputs, n)."""
        rows = weight.flatten(self.axes.dim() - 1)
        return rows if bias is None else torch.cat([rows, bias[..., None]], -1)

    def cut(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """The same back."""
        if self.bias is None:
            return rows.reshape(self.weight.shape), None
        return rows[..., :-1].reshape(self.weight.shape), rows[..., -1].clone(
            memory_format=torch.contiguous_format
        )

    def pulled(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """∂U by what is moved, from ∂U by weight and bias: G A."""
        return self.cut(product(self.join(weight, bias), self.axes))

    def pushed(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Moves of weight and bias, from those of what is moved: Δ Aᵀ."""
        return self.cut(product(self.join(weight, bias), self.axes.mT))

    def placed(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What is moved, from weight and bias: (W b) A⁻ᵀ. The columns of A are orthogonal."""
        return self.cut(
            product(self.join(weight, bias), self.axes / self.axes.square().sum(-2, keepdim=True))
        )

    def gradients(self) -> tuple[Tensor, Tensor | None]:
        """∂ of the mean loss by what is moved, in single precision at least."""
        kind, bias = torch.promote_types(self.weight.dtype, torch.float32), self.bias
        assert self.weight.grad is not None
        if bias is not None:
            bias = (torch.zeros_like(bias) if bias.grad is None else bias.grad.detach()).to(kind)
        return self.pulled(self.weight.grad.detach().to(kind), bias)

    def places(self) -> tuple[Tensor, Tensor | None]:
        """What is moved, where it is now."""
        kind = torch.promote_types(self.weight.dtype, torch.float32)
        bias = None if self.bias is None else self.bias.detach().to(kind)
        return self.placed(self.weight.detach().to(kind), bias)


class Axes:
    """(W b) Q S is moved in the place of (W b), for layers whose inputs x̃ = (x, 1) have E x̃ x̃ᵀ = Q Λ Qᵀ.

    The curvature of a layer by its weights, and the noise of their gradients, go as E x̃ x̃ᵀ. Where features have a
    mean, or are alike, a few directions have nearly all of both: masses that are heavy enough for them keep the others
    from moving, and no thermostat of a coordinate takes away what coordinates have of the noise in common. Along Q,
    with S² = Λ + what the prior adds, both are even. The map is linear: the posterior is the same, whatever Q and S
    are.

    pairs: of weight and bias (−1: none), by their numbers among the sampler's parameters
    """

    def __init__(self, pairs: Sequence[Sequence[int]] = ()) -> None:
        self.pairs = [[*pair] for pair in pairs]
        self._layers: dict[int, Layer] | None = None  # by the ids of weights and biases
        self._found: dict[int, tuple[Any, Any]] = {}  # gradients of this step, by the id of the weight

    def __getstate__(self) -> dict[str, Any]:
        return {"pairs": self.pairs, "_layers": None, "_found": {}}

    def add(self, sampler: "Sampler", moments: Moments) -> None:
        """What was seen of the inputs of some layers, to what was seen before. Weights and biases that do not belong
        to one group, have no temperature, or are in another layer too, stay as they are."""
        groups = {id(p): group for group in sampler.param_groups for p in group["params"]}
        numbers = {id(p): number for number, p in enumerate(_parameters(sampler))}
        for weight, (bias, seen, count) in moments.items():
            group = groups.get(id(weight))
            together = bias is None or group is groups.get(id(bias))
            if group is None or group["temperature"] == 0 or not together or not seen.isfinite().all():
                continue
            pair = [numbers[id(weight)], -1 if bias is None else numbers[id(bias)]]
            if pair not in self.pairs:
                if {*pair} - {-1} & {number for other in self.pairs for number in other}:
                    continue
                self.pairs.append(pair)
            state, seen = sampler.state[weight], seen.to(torch.promote_types(weight.dtype, torch.float32))
            if SEEN not in state:
                state[SEEN], state[COUNT] = torch.zeros_like(seen), seen.new_zeros(())
            state[COUNT] = state[COUNT] + count
            state[SEEN] = torch.lerp(state[SEEN], seen, count / float(state[COUNT]))

    def turn(self, sampler: "Sampler") -> None:
        """Move along the axes of what was seen, which is not needed any more."""
        known = _parameters(sampler)
        for state in (sampler.state[known[weight]] for weight, _ in self.pairs):
            if SEEN in state:
                values, vectors = torch.linalg.eigh(state[SEEN].cpu().double())  # the largest last
                size, count = values.shape[-1], float(state[COUNT])
                floor = max(1 / (WORTH * sampler.num_data), LEAST * float(values.max()))
                if count < ENOUGH * size:  # small ones are by chance
                    floor += size / count * float(values[..., :-1].mean())
                scale = (values.clamp_min(0) + floor).sqrt()
                state[AXES] = (vectors / scale[..., None, :]).to(state[SEEN]).contiguous()
            for name in (SEEN, COUNT):
                state.pop(name, None)
        self._layers = None

    def layers(self, sampler: "Sampler") -> dict[int, Layer]:
        """Those that are moved so, by the ids of weight and bias."""
        if self._layers is None:
            known, self._layers = _parameters(sampler), {}
            for weight, bias in self.pairs:
                mine = [known[number] for number in (weight, bias) if number >= 0]
                if AXES in sampler.state[mine[0]]:
                    layer = Layer(mine[0], mine[1] if mine[1:] else None, sampler.state[mine[0]][AXES])
                    self._layers |= {id(p): layer for p in mine}
        return self._layers

    def gradient(self, sampler: "Sampler", p: Tensor) -> Tensor:
        """That of the mean loss by what is moved, in single precision at least."""
        assert p.grad is not None
        layer = self.layers(sampler).get(id(p))
        if layer is None or layer.weight.grad is None:
            return p.grad.detach().to(torch.promote_types(p.dtype, torch.float32))
        weight, bias = self._gradients(layer)
        return weight if bias is None or p is layer.weight else bias

    def _gradients(self, layer: Layer) -> tuple[Tensor, Tensor | None]:
        """Those of the layer, found once in a step, however many look at them."""
        given = [p.grad for p in (layer.weight, layer.bias) if p is not None]
        state = [(id(g), None if g is None else internals.version_of(g)) for g in given]
        known, found = self._found.get(id(layer.weight), (None, None))
        if found is None or known != state:
            found = layer.gradients()
            self._found[id(layer.weight)] = (state, found)
        return found

    def place(self, sampler: "Sampler", p: Tensor) -> Tensor:
        """What is moved, in single precision at least; a copy."""
        layer = self.layers(sampler).get(id(p))
        if layer is None:
            return p.detach().to(torch.promote_types(p.dtype, torch.float32), copy=True)
        weight, bias = layer.places()
        return weight if bias is None or p is layer.weight else bias

    def pull(self, sampler: "Sampler", moved: Sequence[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Gradients by `moved` as those by what is moved."""
        return self._each(sampler, moved, gradients, Layer.pulled)

    def push(
        self, sampler: "Sampler", moved: Sequence[Tensor], moves: list[Tensor], back: bool = False
    ) -> list[Tensor]:
        """Moves of what is moved as those of `moved`, or those of `moved` `back` as they were."""
        return self._each(sampler, moved, moves, Layer.placed if back else Layer.pushed)

    def _each(
        self, sampler: "Sampler", moved: Sequence[Tensor], values: list[Tensor], change: Callable[..., Any]
    ) -> list[Tensor]:
        places = {id(p): place for place, p in enumerate(moved)}
        changed = [*values]
        for number, layer in self.layers(sampler).items():
            if number == id(layer.weight):
                mine = [places[id(p)] for p in (layer.weight, layer.bias) if p is not None]
                found = change(layer, values[mine[0]], values[mine[1]] if mine[1:] else None)
                for place, value in zip(mine, found, strict=False):
                    changed[place] = value
        return changed

    @contextmanager
    def moving(self, sampler: "Sampler") -> Iterator[None]:
        """Inside, a step of weights and biases is one of what is moved; gradients are as before afterwards."""
        layers = [layer for n, layer in self.layers(sampler).items() if n == id(layer.weight)]
        layers = [layer for layer in layers if layer.weight.grad is not None]
        parts = [[p for p in (layer.weight, layer.bias) if p is not None] for layer in layers]
        before = [[(p.grad, precise(p, sampler.state)) for p in mine] for mine in parts]
        for layer, mine in zip(layers, parts, strict=True):
            for p, gradient in zip(mine, self._gradients(layer), strict=False):
                p.grad = None if gradient is None else gradient.to(p.dtype)
        self._found.clear()
        yield
        for layer, mine, old in zip(layers, parts, before, strict=True):
            moves = [precise(p, sampler.state) - place for p, (_, place) in zip(mine, old, strict=True)]
            pushed = layer.pushed(moves[0], moves[1] if moves[1:] else None)
            for p, move, (gradient, place) in zip(mine, pushed, old, strict=False):
                assert move is not None
                p.grad, place = gradient, place + move
                if "master" in sampler.state[p]:
                    sampler.state[p]["master"].copy_(place)
                p.copy_(place)


def product(rows: Tensor, axes: Tensor) -> Tensor:
    """rows · axes in full precision: by autocast or TF32 a steep direction would leak into flat ones."""
    with torch.autocast(rows.device.type, enabled=False):
        return (rows.double() @ axes.double()).to(rows) if rows.is_cuda else rows @ axes


def _parameters(sampler: "Sampler") -> list[Tensor]:
    return [p for group in sampler.param_groups for p in group["params"]]
