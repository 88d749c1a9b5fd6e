"""ResNet++: residual networks without batch norm, made to be sampled from.

SELU, weight normalization as direction × scale, and residual branches that start small (simplified Fixup).
Priors for its parameters: `bf.prior("weight_norm")`.

Reference: Heek and Kalchbrenner, "Bayesian Inference for Large Scale Image Classification", 2019, section 4.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesify.checks import Count, checked
from bayesify.nets.parts import Shape, check_image, check_stem
from bayesify.nets.resnet import BLOCKS_PER_STAGE, stages

FIXUP = 0.125  # the small constant that the paper does not name


class WeightNorm(nn.Module):
    """θ⁽ⁱ⁾ = φ_s⁽ⁱ⁾ φ_d⁽ⁱ⁾ / ‖φ_d⁽ⁱ⁾‖ for every output feature i (eq. 12): `direction`, `scale` and `bias`.

    Directions start uniform on the unit sphere, scales at `gain`: with 1 a unit-variance input keeps its
    variance, which is what SELU asks for.
    """

    def __init__(self, *shape: int, gain: float = 1.0) -> None:
        super().__init__()
        self.gain = gain
        self.direction = nn.Parameter(torch.empty(shape))  # (features, ...)
        self.scale = nn.Parameter(torch.empty(shape[0]))
        self.bias = nn.Parameter(torch.empty(shape[0]))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            normal = torch.randn_like(self.direction)
            self.direction.copy_(F.normalize(normal.flatten(1)).view_as(normal))
            self.scale.fill_(self.gain)
            self.bias.zero_()

    @property
    def weight(self) -> Tensor:
        flat = self.direction.flatten(1)  # (features, d)
        factor = self.scale / torch.linalg.vector_norm(flat, dim=1)
        return (flat * factor[:, None]).view_as(self.direction)


class WeightNormLinear(WeightNorm):
    """(batch, inputs) -> (batch, outputs)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class WeightNormConv2d(WeightNorm):
    """A convolution padded to keep the size at stride 1."""

    def __init__(
        self, num_inputs: int, num_filters: int, kernel: int, stride: int = 1, gain: float = 1.0
    ) -> None:
        super().__init__(num_filters, num_inputs, kernel, kernel, gain=gain)
        self.stride, self.padding = stride, kernel // 2

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding)


class Block(nn.Module):
    """y = selu(shortcut(x) + conv(selu(conv(… x)))): a 3×3 pair, or 1×1, 3×3, 1×1 four times as wide (Fig. 1)."""

    def __init__(self, num_inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        num_outputs = 4 * width if bottleneck else width
        shapes = [(1, 1), (3, stride), (1, 1)] if bottleneck else [(3, stride), (3, 1)]  # kernel, stride
        channels = [num_inputs, *[width] * (len(shapes) - 1), num_outputs]
        gains = [1.0] * (len(shapes) - 1) + [FIXUP]
        self.convs = nn.ModuleList(
            WeightNormConv2d(*ends, *shape, gain)
            for ends, shape, gain in zip(pairwise(channels), shapes, gains, strict=True)
        )
        same = stride == 1 and num_inputs == num_outputs
        self.shortcut = nn.Identity() if same else WeightNormConv2d(num_inputs, num_outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.convs[0](x)
        for conv in self.convs[1:]:
            out = conv(F.selu(out))
        return F.selu(out + self.shortcut(x))


class ResNetPP(nn.Module):
    """Stem, stages of residual blocks (each after the first halves the size), averaging, one linear layer.

    (batch, channels, height, width) -> (batch, num_outputs)
    """

    def __init__(
        self,
        blocks_per_stage: Sequence[int],
        width: int,
        num_outputs: int,
        channels: int,
        stem: str,
        bottleneck: bool,
    ) -> None:
        super().__init__()
        large = stem == "imagenet"
        self.stem = WeightNormConv2d(channels, width, 7 if large else 3, 2 if large else 1)
        self.pool = nn.MaxPool2d(3, 2, padding=1) if large else nn.Identity()
        block = partial(Block, bottleneck=bottleneck)
        self.blocks, num_features = stages(block, blocks_per_stage, width, 4 if bottleneck else 1)
        self.head = WeightNormLinear(num_outputs, num_features)

    def forward(self, x: Tensor) -> Tensor:
        features = self.blocks(self.pool(F.selu(self.stem(x))))  # (batch, c, h, w)
        return self.head(features.mean((2, 3)))


@checked
def resnetpp_cifar(
    depth: int, num_outputs: int, input_shape: Shape = (3, 32, 32), width: Count = 16
) -> ResNetPP:
    """ResNet++-20/32/44/56: depth = 6 n + 2, three stages of n pairs of 3×3 convolutions.

    width: of the first stage; the paper's ResNet-56 has 32.

    >>> resnetpp_cifar(20, 10, (3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    channels, _, _ = check_image(input_shape, 4, "resize the images or choose net='mlp'")
    return ResNetPP([(depth - 2) // 6] * 3, width, num_outputs, channels, "cifar", bottleneck=False)


@checked
def resnetpp(
    depth: int,
    num_outputs: int,
    input_shape: Shape = (3, 32, 32),
    stem: str = "auto",
    width: Count = 64,
) -> ResNetPP:
    """ResNet++-50.

    stem: "imagenet" (a quarter of the size), "cifar" (full size), or "auto": the first from 64 pixels on.
    width: of the first stage.
    """
    stem, channels = check_stem(stem, input_shape)
    return ResNetPP(BLOCKS_PER_STAGE[depth], width, num_outputs, channels, stem, bottleneck=True)
