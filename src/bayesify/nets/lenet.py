"""LeNet-5, in Caffe's widths and in the original ones.

References: LeCun et al., "Gradient-Based Learning Applied to Document Recognition", Proc. IEEE 1998; the
20-50-500 version is the one shipped with Caffe, the MNIST net of paper 5.
"""

from functools import partial
from itertools import pairwise

from torch import nn

from bayesify.checks import Rate, checked
from bayesify.nets.mlp import hidden_layer
from bayesify.nets.parts import FeaturesHead, Shape, check_image, conv_size, dropout_layer
from bayesify.nets.parts import activation as make_activation


@checked
def lenet5(
    convs: tuple[int, int],
    dense: tuple[int, ...],
    num_outputs: int,
    input_shape: Shape = (1, 28, 28),
    activation: str = "relu",
    conv_activation: str | None = None,
    batch_norm: bool = False,
    dropout: Rate = 0.0,
) -> FeaturesHead:
    """Two 5×5 convolutions without padding, each followed by 2×2 max pooling, then dense layers.

    (batch, channels, height, width) -> (batch, num_outputs); 28×28 gives 4×4 features, 32×32 gives 5×5.

    activation: after each hidden layer: "relu", "tanh", ….
    conv_activation: after each convolution; None takes `activation`, as the published code of paper 5 does.
        Caffe's own file has none there: conv_activation="identity".
    batch_norm: after each hidden layer (biases left out).
    dropout: rate before the first dense layer.

    >>> lenet(10, (1, 28, 28))(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    channels, height, width = check_image(input_shape, 16, "resize the images or choose net='mlp'")
    after_conv = activation if conv_activation is None else conv_activation
    features = nn.Sequential(
        *conv_layer(channels, convs[0], after_conv, batch_norm),
        *conv_layer(convs[0], convs[1], after_conv, batch_norm),
    )
    sizes = (convs[1] * feature_size(height) * feature_size(width), *dense)
    layers: list[nn.Module] = [nn.Flatten(), *dropout_layer(dropout)]
    for num_inputs, num_units in pairwise(sizes):
        layers += hidden_layer(num_inputs, num_units, activation, batch_norm, dropout=0.0)
    return FeaturesHead(features, nn.Sequential(*layers, nn.Linear(sizes[-1], num_outputs)))


def conv_layer(num_inputs: int, num_filters: int, activation: str, batch_norm: bool) -> list[nn.Module]:
    """5×5 convolution without padding, batch norm, activation, 2×2 max pooling."""
    layers: list[nn.Module] = [nn.Conv2d(num_inputs, num_filters, 5, bias=not batch_norm)]
    if batch_norm:
        layers.append(nn.BatchNorm2d(num_filters))
    return [*layers, make_activation(activation, "conv_activation"), nn.MaxPool2d(2)]


def feature_size(size: int) -> int:
    """Length of a dimension after both convolutions and poolings: 28 -> 4, 32 -> 5."""
    return conv_size(conv_size(size, 5) // 2, 5) // 2


#: Caffe's LeNet-5: 20 and 50 filters, 500 units
lenet = partial(lenet5, (20, 50), (500,))
#: the widths of 1998: 6 and 16 filters, 120 and 84 units; max pooling and ReLU as used today
lenet_small = partial(lenet5, (6, 16), (120, 84))
