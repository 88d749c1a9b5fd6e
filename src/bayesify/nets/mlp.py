"""Multi-layer perceptrons.

References: the regression nets of Hernández-Lobato & Adams, "Probabilistic Backpropagation", ICML 2015, one
hidden layer of 50 or 100 units; paper 2 adds batch norm after the input and after the hidden layer.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn

from bayesify.checks import Count, Rate, checked
from bayesify.nets.parts import Shape, dropout_layer
from bayesify.nets.parts import activation as make_activation


def hidden_layer(
    num_inputs: int, num_units: int, activation: str, batch_norm: bool, dropout: float
) -> list[nn.Module]:
    """Linear, batch norm, activation, dropout; the linear bias is left out where batch norm has its own."""
    layers: list[nn.Module] = [nn.Linear(num_inputs, num_units, bias=not batch_norm)]
    if batch_norm:
        layers.append(nn.BatchNorm1d(num_units))
    return [*layers, make_activation(activation), *dropout_layer(dropout)]


@checked
def mlp(
    num_outputs: int,
    input_shape: Shape,
    hidden: Sequence[Count] = (100, 100),
    activation: str = "relu",
    batch_norm: bool = False,
    input_norm: bool = False,
    dropout: Rate = 0.0,
    output_bias: bool = True,
) -> nn.Sequential:
    """y = W_L φ(… φ(W_1 x)): (batch, *input_shape) -> (batch, num_outputs); any input is flattened.

    hidden: units of each hidden layer; `()` gives a linear model.
    activation: after each hidden layer: "relu", "tanh", ….
    batch_norm: normalise between each hidden linear layer and its activation.
    input_norm: normalise the input (paper 2's regression net has both).
    dropout: rate after each hidden layer.
    output_bias: False leaves the last bias out, as in paper 2's count of the L = H = 100 net.

    >>> mlp(1, (13,), hidden=(50,), batch_norm=True, input_norm=True)(torch.zeros(4, 13)).shape
    torch.Size([4, 1])
    """
    sizes = [prod(input_shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    if input_norm:
        layers.append(nn.BatchNorm1d(sizes[0]))
    for num_inputs, num_units in pairwise(sizes):
        layers += hidden_layer(num_inputs, num_units, activation, batch_norm, dropout)
    layers.append(nn.Linear(sizes[-1], num_outputs, bias=output_bias))
    return nn.Sequential(*layers)
