"""Deep pyramidal residual networks: the width grows a little in every block.

Reference: Han et al., "Deep Pyramidal Residual Networks", CVPR 2017, eq. 2 (additive) and Fig. 6(d).
"""

from functools import partial
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from bayesify.checks import Depth, NotNegative, checked
from bayesify.nets.parts import NormBeforeHead, Shape, check_image, pad_channels
from bayesify.nets.resnet import ConvNorm


class PyramidBlock(nn.Module):
    """y = pad(pool(x)) + bn(conv3(relu(bn(conv3(bn(x)))))): no ReLU before the first convolution.

    pool: 2×2 averaging at stride 2 (the odd last row and column kept), identity at stride 1; pad: zeros for
    the new channels.
    """

    def __init__(self, num_inputs: int, num_outputs: int, stride: int) -> None:
        super().__init__()
        self.num_extra = num_outputs - num_inputs
        self.first = nn.Sequential(nn.BatchNorm2d(num_inputs), *ConvNorm(num_inputs, num_outputs, 3, stride))
        self.second = ConvNorm(num_outputs, num_outputs, 3)
        self.pool = nn.AvgPool2d(2, ceil_mode=True) if stride == 2 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x))) + pad_channels(self.pool(x), self.num_extra)


def widths(depth: int, alpha: float) -> list[int]:
    """Width after the stem and after each block: round(16 + alpha i / n), i = 0 … n, n = (depth − 2) / 2."""
    num_blocks = (depth - 2) // 2
    return [round(16 + alpha * i / num_blocks) for i in range(num_blocks + 1)]


@checked
def pyramidnet(
    num_outputs: int, input_shape: Shape = (3, 32, 32), depth: Depth = 20, alpha: NotNegative = 48.0
) -> NormBeforeHead:
    """PyramidNet of basic blocks, in three stages.

    depth: layers, 6 n + 2.
    alpha: channels gained from stem to head.

    >>> pyramidnet(10, (3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    if depth < 8 or depth % 6 != 2:
        raise ValueError(f"depth={depth} must be 6 n + 2 with n >= 1; choose e.g. 20, 56 or 110")
    channels, _, _ = check_image(input_shape, 4, "resize the images or choose net='mlp'")
    sizes = widths(depth, alpha)
    per_stage = (len(sizes) - 1) // 3
    stem = ConvNorm(channels, 16, 3)
    steps = enumerate(pairwise(sizes))  # the first block of stages 2 and 3 halves the size
    halving = (per_stage, 2 * per_stage)
    blocks = nn.Sequential(*(PyramidBlock(n, m, 2 if i in halving else 1) for i, (n, m) in steps))
    return NormBeforeHead(stem, blocks, sizes[-1], num_outputs)


#: the CIFAR-100 net of paper 2: 110 layers, widths 16 + 5 i, i = 1 … 54
pyramidnet110 = partial(pyramidnet, depth=110, alpha=270.0)
