"""Layers move at the mean of their inputs: features with a mean would tie all weights to their bias."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from bayesify.samplers.bucket import precise

if TYPE_CHECKING:
    from bayesify.samplers.base import Sampler

CENTRE = "centre"  # state of a weight: c, with a dimension of one wherever it is the same


class Layer(NamedTuple):
    """A weight (..., inputs, ...), the bias (...) beside it, and c, the mean of the inputs."""

    weight: Tensor
    bias: Tensor
    centre: Tensor

    def pulled(self, weight: Tensor, bias: Tensor) -> Tensor:
        """∂U/∂W at a fixed b′ = b + W c, from ∂U/∂W and ∂U/∂b: G_W − G_b c."""
        return weight - bias.reshape(*bias.shape, *[1] * (weight.dim() - bias.dim())) * self.centre

    def shift(self, move: Tensor) -> Tensor:
        """Δb at a fixed b′ for a move of W: −ΔW c."""
        return -(move * self.centre).flatten(self.bias.dim()).sum(-1)


class Centres:
    """W and b′ = b + W c are moved in the place of W and b, for layers whose inputs have a mean c.

    With inputs of mean c and spread s the curvature along c is c²/s² times that of the other directions, and so is
    the noise of the gradients: masses that are heavy enough for it would keep all the others from moving. b′, what
    the layer says at the mean of its inputs, has that direction for itself. The map from (W, b) is linear and of
    determinant 1, so that the posterior is the same, whatever c is.

    pairs: of weight and bias, by their numbers among the sampler's parameters
    """

    def __init__(self) -> None:
        self.pairs: list[list[int]] = []

    def set(self, sampler: "Sampler", means: Mapping[Tensor, tuple[Tensor, Tensor]]) -> None:
        """means: weight -> (bias, c), the layers that the data enter; those whose weight and bias do not belong to one
        group, or have no temperature, stay as they are."""
        groups = {id(p): group for group in sampler.param_groups for p in group["params"]}
        numbers = {id(p): number for number, p in enumerate(_parameters(sampler))}
        for weight, (bias, centre) in means.items():
            group = groups.get(id(weight))
            if group is not None and group is groups.get(id(bias)) and group["temperature"] > 0:
                kind = torch.promote_types(weight.dtype, torch.float32)
                sampler.state[weight][CENTRE] = centre.to(weight.device, kind)
                self.pairs.append([numbers[id(weight)], numbers[id(bias)]])

    def layers(self, sampler: "Sampler") -> list[Layer]:
        """Those that are moved so."""
        if not self.pairs:
            return []
        known = _parameters(sampler)
        return [Layer(known[w], known[b], sampler.state[known[w]][CENTRE]) for w, b in self.pairs]

    def gradient(self, sampler: "Sampler", p: Tensor) -> Tensor:
        """That of the mean loss by what is moved, in single precision at least."""
        assert p.grad is not None
        gradient = p.grad.detach().to(torch.promote_types(p.dtype, torch.float32))
        for layer in self.layers(sampler):
            if layer.weight is p and layer.bias.grad is not None:
                gradient = layer.pulled(gradient, layer.bias.grad.detach().to(gradient.dtype))
        return gradient

    def pull(self, sampler: "Sampler", moved: Sequence[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Gradients by `moved` as those by what is moved."""
        places = {id(p): place for place, p in enumerate(moved)}
        pulled = [*gradients]
        for layer in self.layers(sampler):
            here, there = places[id(layer.weight)], places[id(layer.bias)]
            pulled[here] = layer.pulled(gradients[here], gradients[there])
        return pulled

    def push(
        self, sampler: "Sampler", moved: Sequence[Tensor], moves: list[Tensor], back: bool = False
    ) -> list[Tensor]:
        """Moves of what is moved as those of `moved`, or those of `moved` `back` as they were."""
        places = {id(p): place for place, p in enumerate(moved)}
        pushed = [*moves]
        for layer in self.layers(sampler):
            there = places[id(layer.bias)]
            shift = layer.shift(moves[places[id(layer.weight)]])
            pushed[there] = moves[there] + (-shift if back else shift)
        return pushed

    @contextmanager
    def moving(self, sampler: "Sampler") -> Iterator[None]:
        """Inside, a step of W and b is one of W and b′; gradients are as before afterwards."""
        layers = [layer for layer in self.layers(sampler) if None not in (layer.weight.grad, layer.bias.grad)]
        before = [(layer.weight.grad, precise(layer.weight, sampler.state)) for layer in layers]
        for layer in layers:
            layer.weight.grad = self.gradient(sampler, layer.weight).to(layer.weight.dtype)
        yield
        for layer, (gradient, old) in zip(layers, before, strict=True):
            layer.weight.grad = gradient
            place = precise(layer.bias, sampler.state)
            place += layer.shift(precise(layer.weight, sampler.state) - old)
            if "master" in sampler.state[layer.bias]:
                sampler.state[layer.bias]["master"].copy_(place)
            layer.bias.copy_(place)


def _parameters(sampler: "Sampler") -> list[Tensor]:
    return [p for group in sampler.param_groups for p in group["params"]]
