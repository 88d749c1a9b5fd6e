"""The encoder of a 3-D U-Net as a classifier of volumes.

Reference: paper 1, Fig. 9, for 105×127×105 brain images, after Ronneberger et al., "U-Net", MICCAI 2015. The
figure does not say what a Conv3D block holds: here a 3×3×3 convolution with padding 1, batch norm and ReLU.
"""

from torch import nn

from bayesify.checks import Count, checked
from bayesify.nets.parts import FeaturesHead, Shape, check_image, conv_size

FILTERS = (1, 2, 4, 8, 16)  # times the width
STRIDES = (1, 1, 1, 3, 3)
POOLS = (3, 2, 2, 2, 1)  # the last block is not followed by pooling
SMALLEST = 8


@checked
def unet3d_encoder(num_outputs: int, input_shape: Shape, width: Count = 16) -> FeaturesHead:
    """The net of paper 1, Fig. 9: five Conv3D blocks with max pooling between, one linear layer on 16 width features.

    (batch, channels, depth, height, width) -> (batch, num_outputs). 105×127×105 ends at 1×1×1, as the
    figure's Linear(256, 2) asks. Smaller volumes skip a pooling in a dimension that would vanish; whatever
    is left of larger ones is averaged.

    width: filters of the first block.

    >>> unet3d_encoder(2, (1, 28, 28, 28))(torch.zeros(2, 1, 28, 28, 28)).shape
    torch.Size([2, 2])
    """
    remedy = "resize the volumes or choose net='mlp'"
    channels, *sizes = check_image(input_shape, SMALLEST, remedy, ("depth", "height", "width"))
    layers: list[nn.Module] = []
    for factor, stride, pool in zip(FILTERS, STRIDES, POOLS, strict=True):
        conv = nn.Conv3d(channels, factor * width, 3, stride, padding=1, bias=False)
        channels = factor * width
        layers += [conv, nn.BatchNorm3d(channels), nn.ReLU()]
        sizes = [conv_size(size, 3, stride, padding=1) for size in sizes]
        kernel = tuple(pool if size >= pool else 1 for size in sizes)  # 1 where it would vanish
        if max(kernel) > 1:
            layers.append(nn.MaxPool3d(kernel))
        sizes = [size // step for size, step in zip(sizes, kernel, strict=True)]
    head = nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(channels, num_outputs))
    return FeaturesHead(nn.Sequential(*layers), head)
