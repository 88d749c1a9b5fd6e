"""Putting |·| behind layers: in the place of their activations, or on their outputs (paper 5, App. D)."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from bayesify.nets.parts import Abs
from bayesify.weights.observing.watch import layer_of
from bayesify.weights.where import kind_of

ACTIVATIONS = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU),
    *(nn.GELU, nn.SiLU, nn.Softplus, nn.Tanh),
)
BETWEEN = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.Identity, nn.Flatten)


def put_abs_after(net: nn.Module, names: Sequence[str]) -> None:
    """|·| behind the layers of these parameters; the network's last layer needs none.

    It replaces an activation module that stands behind the layer in one nn.Sequential, with nothing but normalisation
    and dropout between. Elsewhere the network's own code calls the activation: there the layer itself gives |y|, by a
    forward hook, which leaves the names of the state dict as they are. A ReLU behind it changes nothing then; a
    normalisation behind it sees |y|.
    """
    layers = dict.fromkeys(layer_of(name) for name in names)
    last = [layer_of(name) for name, p in net.named_parameters() if p.dim() > 1][-1]
    for layer in layers:
        if layer == last:
            continue
        path, _, key = layer.rpartition(".")
        parent, module = net.get_submodule(path), net.get_submodule(layer)
        found = _activation_behind(parent, key) if isinstance(parent, nn.Sequential) else None
        attention = nn.MultiheadAttention in (type(parent), type(module))
        if found is not None:
            parent._modules[found] = Abs()
        elif attention or kind_of(module) not in ("linear", "conv"):
            raise ValueError(
                f"abs_after=True: {layer!r} ({type(module).__name__}) is no layer whose output |·| could follow: "
                f"use torch.abs in the network itself, or leave the layer out with where="
            )
        elif absolute not in module._forward_hooks.values():
            module.register_forward_hook(absolute)


def absolute(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    """A forward hook: the layer's output y becomes |y|."""
    return output.abs()


def _activation_behind(parent: nn.Sequential, layer: str) -> str | None:
    """The name of the next activation; None where something else comes first."""
    names = list(parent._modules)
    for name in names[names.index(layer) + 1 :]:
        module = parent._modules[name]
        if isinstance(module, (*ACTIVATIONS, Abs)):
            return name
        if not isinstance(module, BETWEEN) and kind_of(module) != "norm":
            return None
    return None
