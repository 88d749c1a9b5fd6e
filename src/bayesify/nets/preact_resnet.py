"""Pre-activation residual networks.

Reference: He et al., "Identity Mappings in Deep Residual Networks", ECCV 2016, Fig. 4(e) and appendix. Batch
norm and ReLU stand before every convolution, and once more after the last block.
"""

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from bayesify.nets.parts import HeConv2d, NormBeforeHead, Shape, check_stem
from bayesify.nets.resnet import BLOCKS_PER_STAGE, stages


class NormConv(nn.Module):
    """conv(relu(bn(x))), without bias, padded to keep the size at stride 1."""

    def __init__(self, num_inputs: int, num_filters: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(num_inputs)
        self.conv = HeConv2d(num_inputs, num_filters, kernel, stride, padding=kernel // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.relu(self.norm(x)))


class PreActBlock(nn.Module):
    """y = shortcut + residual(a), a = relu(bn(x)).

    residual: two 3×3 convolutions, or 1×1, 3×3, 1×1 (`bottleneck`), the last four times as wide.
    shortcut: x itself, or where the shape changes a 1×1 convolution of a.
    """

    def __init__(self, num_inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        num_outputs = 4 * width if bottleneck else width
        self.norm = nn.BatchNorm2d(num_inputs)
        if bottleneck:
            first = HeConv2d(num_inputs, width, 1, bias=False)
            rest: list[nn.Module] = [NormConv(width, width, 3, stride), NormConv(width, num_outputs, 1)]
        else:
            first = HeConv2d(num_inputs, width, 3, stride, padding=1, bias=False)
            rest = [NormConv(width, width, 3)]
        self.residual = nn.Sequential(first, *rest)
        changes = stride != 1 or num_inputs != num_outputs
        self.project = HeConv2d(num_inputs, num_outputs, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm(x))
        shortcut = x if self.project is None else self.project(active)
        return self.residual(active) + shortcut


def make_stem(kind: str, channels: int) -> nn.Sequential:
    """A bare convolution, since the first block starts with batch norm; max pooling behind the 7×7 one."""
    if kind == "imagenet":
        conv = HeConv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        return nn.Sequential(conv, nn.MaxPool2d(3, 2, padding=1))
    return nn.Sequential(HeConv2d(channels, 64, 3, padding=1, bias=False))


def preact_resnet(
    depth: int, num_outputs: int, input_shape: Shape = (3, 32, 32), stem: str = "auto"
) -> NormBeforeHead:
    """PreActResNet-18/34/50/101/152: four stages of pre-activation blocks.

    stem: "imagenet" (a quarter of the size), "cifar" (full size), or "auto": the first from 64 pixels on.

    >>> preact_resnet(18, 10, (3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    stem, channels = check_stem(stem, input_shape)
    bottleneck = depth >= 50
    first = make_stem(stem, channels)
    block = partial(PreActBlock, bottleneck=bottleneck)
    blocks, width = stages(block, BLOCKS_PER_STAGE[depth], 64, 4 if bottleneck else 1)
    return NormBeforeHead(first, blocks, width, num_outputs)
