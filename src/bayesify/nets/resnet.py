"""Residual networks, for ImageNet (18 to 152 layers) and for CIFAR (20 to 110 layers).

Reference: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016: Table 1 for the first kind,
section 4.2 for the second.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from bayesify.checks import Count, checked
from bayesify.names import lookup
from bayesify.nets.parts import HeConv2d, Shape, check_image, check_stem, pad_channels, pooled_head

BLOCKS_PER_STAGE = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}


class ConvNorm(nn.Sequential):
    """Convolution without bias, padded to keep the size at stride 1, then batch norm."""

    def __init__(self, num_inputs: int, num_filters: int, kernel: int, stride: int = 1) -> None:
        conv = HeConv2d(num_inputs, num_filters, kernel, stride, padding=kernel // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(num_filters))


class PadShortcut(nn.Module):
    """Option A of the paper: every stride-th pixel, and zeros for the new channels. No parameters."""

    def __init__(self, num_inputs: int, num_outputs: int, stride: int) -> None:
        super().__init__()
        self.num_extra, self.stride = num_outputs - num_inputs, stride

    def forward(self, x: Tensor) -> Tensor:
        return pad_channels(x[:, :, :: self.stride, :: self.stride], self.num_extra)


def make_shortcut(kind: str, num_inputs: int, num_outputs: int, stride: int) -> nn.Module:
    """Identity where shapes agree, else "pad" (option A) or "projection" (option B: 1×1 convolution)."""
    kinds = {"pad": PadShortcut, "projection": lambda n, m, s: ConvNorm(n, m, 1, s)}
    changed = lookup(kinds, kind, "shortcut")
    if stride == 1 and num_inputs == num_outputs:
        return nn.Identity()
    return changed(num_inputs, num_outputs, stride)


class BasicBlock(nn.Module):
    """y = relu(shortcut(x) + bn(conv3(relu(bn(conv3(x))))))."""

    expansion = 1

    def __init__(self, num_inputs: int, width: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.first = ConvNorm(num_inputs, width, 3, stride)
        self.second = ConvNorm(width, width, 3)
        self.shortcut = make_shortcut(shortcut, num_inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions, the last four times as wide; the stride sits on the 3×3 one."""

    expansion = 4

    def __init__(self, num_inputs: int, width: int, stride: int, shortcut: str) -> None:
        super().__init__()
        num_outputs = width * self.expansion
        self.reduce = ConvNorm(num_inputs, width, 1)
        self.convolve = ConvNorm(width, width, 3, stride)
        self.expand = ConvNorm(width, num_outputs, 1)
        self.shortcut = make_shortcut(shortcut, num_inputs, num_outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.convolve(F.relu(self.reduce(x))))
        return F.relu(self.expand(out) + self.shortcut(x))


def make_stem(kind: str, channels: int, width: int) -> nn.Sequential:
    """ "imagenet": 7×7 at stride 2 and 3×3 max pooling (a quarter of the size). "cifar": 3×3, same size."""
    if kind == "imagenet":
        return nn.Sequential(ConvNorm(channels, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))
    return nn.Sequential(ConvNorm(channels, width, 3), nn.ReLU())


def stages(
    block: Callable[[int, int, int], nn.Module], blocks_per_stage: Sequence[int], width: int, expansion: int
) -> tuple[nn.Sequential, int]:
    """Residual blocks in order, and the channels of the last; each stage after the first halves the size.

    block: called with (input channels, width, stride); the width doubles with every stage, the output has `expansion`
        times as many channels.
    """
    blocks: list[nn.Module] = []
    num_inputs = width
    for stage, count in enumerate(blocks_per_stage):
        for index in range(count):
            blocks.append(block(num_inputs, width * 2**stage, 2 if stage and not index else 1))
            num_inputs = width * 2**stage * expansion
    return nn.Sequential(*blocks), num_inputs


class ResNet(nn.Module):
    """Stem, stages of residual blocks (each after the first halves the size), averaging, one linear layer.

    (batch, channels, height, width) -> (batch, num_outputs)
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks_per_stage: Sequence[int],
        width: int,
        num_outputs: int,
        channels: int,
        stem: str,
        shortcut: str,
    ) -> None:
        super().__init__()
        self.stem = make_stem(stem, channels, width)
        make_block = partial(block, shortcut=shortcut)
        self.blocks, num_features = stages(make_block, blocks_per_stage, width, block.expansion)
        self.head = pooled_head(num_features, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))


def resnet(depth: int, num_outputs: int, input_shape: Shape = (3, 32, 32), stem: str = "auto") -> ResNet:
    """ResNet-18/34/50/101/152.

    stem: "imagenet" (a quarter of the size), "cifar" (full size), or "auto": the first from 64 pixels on.

    >>> resnet(18, 10, (3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    stem, channels = check_stem(stem, input_shape)
    block = BasicBlock if depth < 50 else Bottleneck
    return ResNet(block, BLOCKS_PER_STAGE[depth], 64, num_outputs, channels, stem, "projection")


@checked
def resnet_cifar(
    depth: int,
    num_outputs: int,
    input_shape: Shape = (3, 32, 32),
    width: Count = 16,
    shortcut: str = "pad",
) -> ResNet:
    """ResNet-20/32/44/56/110: depth = 6 n + 2, three stages of n basic blocks, widths 16, 32 and 64.

    shortcut: "pad" (option A, the paper's choice for CIFAR, no parameters) or "projection" (option B).
    width: of the first stage; paper 4 uses 32.

    >>> resnet_cifar(20, 10, (3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    channels, _, _ = check_image(input_shape, 4, "resize the images or choose net='mlp'")
    stages = [(depth - 2) // 6] * 3
    return ResNet(BasicBlock, stages, width, num_outputs, channels, "cifar", shortcut)
