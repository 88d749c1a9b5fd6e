"""A network whose own dropout layers stay on in eval mode."""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify import torch_internals as internals
from bayesify.divergences.components import weighted_squares
from bayesify.execution import compiling
from bayesify.posteriors.base import Posterior
from bayesify.weights import Call

SEED = "dropout seed"  # not a weight: the seed of one draw's masks


class ActiveDropout(Posterior):
    """The weights are as they are; the masks of the dropout layers are random, fresh for every example.

    The KL is the L2 term (τ/2) ‖w‖² over all trained weights. A draw as a plain network has one mask per layer,
    the same for all examples (Gal and Ghahramani's weights with dropped rows).
    """

    predicts_by_pass = True

    def __init__(self, net: nn.Module, precision: float) -> None:
        super().__init__()
        self.layers = dropout_layers(net)
        self.precision = precision
        self.trained = tuple(n for n, p in net.named_parameters() if p.requires_grad)

    def run(self, net: nn.Module, call: Call, member: int = 0, kl_terms: list[Tensor] | None = None) -> Any:
        if kl_terms is not None:
            kl_terms.append(self.kl(net))
        weights = {} if call.generator is None else {SEED: self.draw(0, 1, call.generator)[SEED][0]}
        return self.run_draw(net, call, weights)

    def draw(self, member: int, n: int, generator: Generator | None = None) -> dict[str, Tensor]:
        device = None if generator is None else generator.device
        return {SEED: torch.randint(2**62, (n,), device=device, generator=generator)}

    def run_draw(self, net: nn.Module, call: Call, weights: Mapping[str, Tensor], member: int = 0) -> Any:
        layers = [net.get_submodule(path) for path in self.layers]
        resting = [layer for layer in layers if not layer.training]
        try:
            for module in resting:
                module.training = True
            if SEED not in weights or compiling():
                return net(*call.args, **call.kwargs)
            devices = {p.device for p in net.parameters() if p.is_cuda}
            with torch.random.fork_rng(list(devices)):
                torch.manual_seed(int(weights[SEED]))
                return net(*call.args, **call.kwargs)
        finally:
            for module in resting:
                module.training = False

    def mean(self, net: nn.Module) -> dict[str, Tensor]:
        """The network as it is: dropout is the identity in eval mode."""
        return {}

    def kl(self, net: nn.Module) -> Tensor:
        parameters = dict(net.named_parameters())  # torch.func puts plain tensors in their place
        trained = [parameters[name] for name in self.trained]
        return weighted_squares(trained, [self.precision / 2] * len(trained))

    def undecayed(self, net: nn.Module) -> Iterator[Tensor]:
        return (net.get_parameter(name) for name in self.trained if self.precision)

    def install(self, net: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
        """With a seed the dropout layers get the masks of that draw, in train and in eval mode."""
        for path in self.layers if SEED in weights else ():
            parent, _, last = path.rpartition(".")
            fixed = FixedMask(net.get_submodule(path), int(weights[SEED]), path)
            net.get_submodule(parent).add_module(last, fixed)
        return net

    def describe(self, name: str) -> str:
        return "point"

    def notes(self) -> list[str]:
        return [f"dropout layers kept on: {', '.join(self.layers)}"]


class FixedMask(nn.Module):
    """A dropout layer with one mask, the same for every example and every call.

    All kinds of dropout are y = s ∘ x + t for a random s and t: t is what becomes of zeros, s + t of ones.
    """

    def __init__(self, layer: nn.Module, seed: int, path: str) -> None:
        super().__init__()
        self.layer = (layer.train(),)  # not a submodule: eval() must not reach it
        self.seed = (seed + zlib.crc32(path.encode())) % 2**63  # layers of one draw differ

    def forward(self, x: Tensor) -> Tensor:
        """s ∘ x + t, from two calls of the layer with one seed."""
        scale, shift = self.mask((1, *x.shape[1:]))
        return x * scale.to(x) + shift.to(x)

    def mask(self, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """s and t."""
        with torch.random.fork_rng([]):
            torch.manual_seed(self.seed)
            shift = self.layer[0](torch.zeros(shape))
            torch.manual_seed(self.seed)
            return self.layer[0](torch.ones(shape)) - shift, shift


class StoredMask(nn.Module):
    """A dropout layer whose mask is a tensor, put in from outside: y = s ∘ x + t."""

    scale: Tensor
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("shift", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """s ∘ x + t."""
        return x * self.scale + self.shift


def dropout_layers(net: nn.Module) -> list[str]:
    """The dropout modules of a network that drop anything (dropout called as a function has no module)."""
    return [path for path, m in net.named_modules() if isinstance(m, internals.DropoutNd) and m.p > 0]
