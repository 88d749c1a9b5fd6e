"""Densely connected networks (DenseNet-BC).

Reference: Huang et al., "Densely Connected Convolutional Networks", CVPR 2017, Table 1; 161 layers with
growth rate 48 as in the authors' published models.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from bayesify.nets.parts import NormBeforeHead, Shape, check_stem
from bayesify.nets.preact_resnet import NormConv
from bayesify.nets.resnet import make_stem

LAYERS_PER_BLOCK = {
    121: (6, 12, 24, 16),
    161: (6, 12, 36, 24),
    169: (6, 12, 32, 32),
    201: (6, 12, 48, 32),
}
GROWTH = {121: 32, 161: 48, 169: 32, 201: 32}


class DenseLayer(nn.Module):
    """y = [x, conv3(relu(bn(conv1(relu(bn(x))))))]: `growth` more channels; conv1 makes 4 growth of them."""

    def __init__(self, num_inputs: int, growth: int) -> None:
        super().__init__()
        self.reduce = NormConv(num_inputs, 4 * growth, 1)
        self.convolve = NormConv(4 * growth, growth, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.convolve(self.reduce(x))], dim=1)  # (batch, num_inputs + growth, h, w)


def densenet(
    depth: int, num_outputs: int, input_shape: Shape = (3, 32, 32), stem: str = "auto"
) -> NormBeforeHead:
    """DenseNet-121/161/169/201: four dense blocks, between them a 1×1 convolution to half the channels and 2×2 average
    pooling.

    stem: "imagenet", "cifar" (a 3×3 convolution at full size, with batch norm and ReLU; the blocks stay the same),
        or "auto": the first from 64 pixels on.

    >>> densenet(121, 10, (3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    stem, channels = check_stem(stem, input_shape)
    growth = GROWTH[depth]
    width = 2 * growth
    first = make_stem(stem, channels, width)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for block, count in enumerate(LAYERS_PER_BLOCK[depth]):
        if block > 0:
            layers[f"transition{block}"] = nn.Sequential(NormConv(width, width // 2, 1), nn.AvgPool2d(2))
            width //= 2
        layers[f"block{block + 1}"] = nn.Sequential(
            *(DenseLayer(width + index * growth, growth) for index in range(count))
        )
        width += count * growth
    return NormBeforeHead(first, nn.Sequential(layers), width, num_outputs)
