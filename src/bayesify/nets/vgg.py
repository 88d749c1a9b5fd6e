"""VGG, and the VGG-like net for CIFAR of paper 5.

References: Simonyan & Zisserman, "Very Deep Convolutional Networks", ICLR 2015, Table 1 (columns A, B, D, E);
Zagoruyko, "92.45% on CIFAR-10 in Torch", 2015, for the VGG-like net.
"""

from collections.abc import Sequence

from torch import nn

from bayesify.checks import Rate, checked
from bayesify.nets.parts import FeaturesHead, HeConv2d, Shape, check_image, choose, dropout_layer, pooled_head

FILTERS = (64, 128, 256, 512, 512)
CONVS_PER_STAGE = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
REMEDY = "resize the images (32x32 is enough), or choose net='lenet'"


def conv_stages(channels: int, rates: Sequence[Sequence[float]], batch_norm: bool) -> nn.Sequential:
    """Five stages of 3×3 convolutions, each ended by 2×2 max pooling.

    rates[s][i]: dropout rate behind convolution i of stage s; 0 leaves it out.
    """
    layers: list[nn.Module] = []
    for num_filters, stage_rates in zip(FILTERS, rates, strict=True):
        for rate in stage_rates:
            layers += conv_layer(channels, num_filters, batch_norm, rate)
            channels = num_filters
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


def conv_layer(num_inputs: int, num_filters: int, batch_norm: bool, dropout: float) -> list[nn.Module]:
    """3×3 convolution with bias, batch norm, ReLU, dropout."""
    layers: list[nn.Module] = [HeConv2d(num_inputs, num_filters, 3, padding=1)]
    if batch_norm:
        layers.append(nn.BatchNorm2d(num_filters))
    return [*layers, nn.ReLU(), *dropout_layer(dropout)]


def dense_head(num_outputs: int, dropout: float) -> nn.Sequential:
    """Average to 7×7, then 4096, 4096 and num_outputs units."""
    return nn.Sequential(
        *(nn.AdaptiveAvgPool2d(7), nn.Flatten()),
        *(nn.Linear(FILTERS[-1] * 7 * 7, 4096), nn.ReLU(), *dropout_layer(dropout)),
        *(nn.Linear(4096, 4096), nn.ReLU(), *dropout_layer(dropout)),
        nn.Linear(4096, num_outputs),
    )


@checked
def vgg(
    depth: int,
    batch_norm: bool,
    num_outputs: int,
    input_shape: Shape = (3, 32, 32),
    head: str = "auto",
    dropout: Rate = 0.5,
) -> FeaturesHead:
    """VGG-11/13/16/19, with or without batch norm.

    head: "imagenet" (two dense layers of 4096 units), "compact" (average, one linear layer), or "auto": the
        first from 224 pixels on.
    dropout: rate in the ImageNet head.

    >>> vgg(11, True, 10, (3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    channels, _, _ = check_image(input_shape, 32, REMEDY)
    head = choose("head", head, input_shape, small="compact", large="imagenet", threshold=224)
    top = dense_head(num_outputs, dropout) if head == "imagenet" else pooled_head(FILTERS[-1], num_outputs)
    rates = [[0.0] * count for count in CONVS_PER_STAGE[depth]]
    return FeaturesHead(conv_stages(channels, rates, batch_norm), top)


VGG_LIKE_RATES = ((0.3, 0), (0.4, 0), (0.4, 0.4, 0), (0.4, 0.4, 0), (0, 0, 0))


def vgg_like(num_outputs: int, input_shape: Shape = (3, 32, 32), dropout: bool = True) -> FeaturesHead:
    """The VGG-like net of paper 5: VGG-16's convolutions with batch norm, one dense layer of 512 units.

    dropout: as in the paper's published code: .3 behind the first convolution, .4 behind those of stages 2 to
        4 that are not followed by pooling, none in stage 5, .5 before each dense layer; False: none.

    >>> vgg_like(10, (3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    channels, _, _ = check_image(input_shape, 32, REMEDY)
    rates = [[rate * dropout for rate in stage] for stage in VGG_LIKE_RATES]
    width, rate = FILTERS[-1], 0.5 * dropout
    head = nn.Sequential(
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        *(*dropout_layer(rate), nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()),
        *(*dropout_layer(rate), nn.Linear(width, num_outputs)),
    )
    return FeaturesHead(conv_stages(channels, rates, batch_norm=True), head)
