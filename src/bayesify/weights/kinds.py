"""What kind of network one is, where defaults and recipes depend on that."""

import re

from torch import nn

from bayesify import torch_internals as internals
from bayesify.weights.where import kind_of

#: kind of network -> what is said of one
KINDS = {
    "convolutional": "convolutions with batch or group norm",
    "transformer": "attention, or convolutions with layer norm",
    "recurrent": "recurrent layers",
    "plain": "neither attention nor convolutions with norm layers",
}
#: layers that attend to positions by their names; gates of channels and places, as of CBAM, belong to convolutions
ATTENTION = "(?<!Channel)(?<!Spatial)(Attention|Attn)"


def kind_of_network(net: nn.Module) -> str:
    """Which of KINDS a network is."""
    layers = [*net.modules()]
    kinds = {kind_of(layer) for layer in layers}
    if any(re.search(ATTENTION, type(layer).__name__) for layer in layers):
        return "transformer"
    if "recurrent" in kinds:
        return "recurrent"
    if not {"conv", "norm"} <= kinds:
        return "plain"
    by_channel = (internals.BatchNorm, internals.InstanceNorm, nn.GroupNorm)
    return "convolutional" if any(isinstance(layer, by_channel) for layer in layers) else "transformer"


def is_linear_model(net: nn.Module) -> bool:
    """Is a linear layer all that has parameters?"""
    owners = [module for module in net.modules() if [*module.parameters(recurse=False)]]
    return [type(owner) for owner in owners] == [nn.Linear]
