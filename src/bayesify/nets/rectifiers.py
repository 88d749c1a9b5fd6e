"""Putting |·| in the place of activations, in a network that holds them as modules (paper 5, App. D)."""

from collections.abc import Sequence

from torch import nn

from bayesify.nets.parts import Abs
from bayesify.weights.watch import layer_of
from bayesify.weights.where import kind_of

ACTIVATIONS = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.CELU,
    nn.GELU,
    nn.SiLU,
    nn.Softplus,
    nn.Tanh,
)
BETWEEN = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.Identity, nn.Flatten)


def put_abs_after(net: nn.Module, names: Sequence[str]) -> None:
    """Replace the activation behind the layers of these parameters by |·|; the network's last layer needs none.

    The layer and its activation must stand in one nn.Sequential, with nothing but normalisation and dropout between.
    """
    layers = dict.fromkeys(layer_of(name) for name in names)
    last = [layer_of(name) for name, p in net.named_parameters() if p.dim() > 1][-1]
    for layer in layers:
        if layer == last:
            continue
        path, _, key = layer.rpartition(".")
        parent = net.get_submodule(path)
        found = _activation_behind(parent, key) if isinstance(parent, nn.Sequential) else None
        if found is None:
            raise ValueError(
                f"abs_after=True: behind layer {layer!r} there is no activation module in an nn.Sequential that |·| "
                f"could replace: use torch.abs in the network itself, or leave the layer out with where="
            )
        parent._modules[found] = Abs()


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
