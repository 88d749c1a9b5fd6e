"""What several families of networks share: input checks, activations, initialised layers, channel padding."""

import torch.nn.functional as F
from torch import Tensor, nn

from bayesify.names import lookup

Shape = tuple[int, ...]  # of one example: (channels, height, width), …


class HeConv2d(nn.Conv2d):
    """A convolution that starts, and restarts, at w ~ N(0, 2 / fan_out), bias 0.

    Reference: He et al., "Delving Deep into Rectifiers", ICCV 2015, eq. 14.
    """

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class Abs(nn.Module):
    """|x|: loses no unit after a zero-mean layer, where ReLU would drop half of them (paper 5, App. D)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "abs": Abs,
    "identity": nn.Identity,
}


def activation(name: str, argument: str = "activation") -> nn.Module:
    """A new activation module by name."""
    return lookup(ACTIVATIONS, name, argument)()


def check_image(
    input_shape: Shape, smallest: int, remedy: str, sides: tuple[str, ...] = ("height", "width")
) -> Shape:
    """`input_shape`, which must be (channels, *sides) with every side at least `smallest`."""
    if len(input_shape) != 1 + len(sides):
        raise ValueError(f"input_shape={input_shape} must be (channels, {', '.join(sides)}) for this net")
    if min(input_shape[1:]) < smallest:
        raise ValueError(
            f"input_shape={input_shape} is too small: this net needs {', '.join(sides[:-1])} and {sides[-1]} of at "
            f"least {smallest}; {remedy}"
        )
    return input_shape


def dropout_layer(dropout: float) -> list[nn.Module]:
    """[dropout at this rate], or nothing at rate 0."""
    return [nn.Dropout(dropout)] if dropout else []


def choose(argument: str, value: str, input_shape: Shape, small: str, large: str, threshold: int) -> str:
    """`value`, or for "auto" the form for the image size: `large` from `threshold` pixels on."""
    automatic = large if len(input_shape) == 3 and min(input_shape[1:]) >= threshold else small
    return lookup({"auto": automatic, small: small, large: large}, value, argument)


SMALLEST = {"imagenet": 32, "cifar": 8}
REMEDY = {
    "imagenet": "resize the images or take stem='cifar'",
    "cifar": "resize the images or choose net='resnet20' or 'mlp'",
}


def check_stem(stem: str, input_shape: Shape) -> tuple[str, int]:
    """(stem, channels); stem "imagenet" quarters the size, "cifar" keeps it, "auto" decides at 64 pixels."""
    stem = choose("stem", stem, input_shape, small="cifar", large="imagenet", threshold=64)
    channels, _, _ = check_image(input_shape, SMALLEST[stem], REMEDY[stem])
    return stem, channels


def pad_channels(x: Tensor, num_extra: int) -> Tensor:
    """x with `num_extra` zero channels behind its own: (batch, c, h, w) -> (batch, c + num_extra, h, w)."""
    return F.pad(x, (0, 0, 0, 0, 0, num_extra)) if num_extra else x


def conv_size(size: int, kernel: int, stride: int = 1, padding: int = 0) -> int:
    """Length of a dimension after a convolution or a floor pooling."""
    return (size + 2 * padding - kernel) // stride + 1


def pooled_head(num_features: int, num_outputs: int) -> nn.Sequential:
    """Average over all positions, then one linear layer: (batch, c, h, w) -> (batch, num_outputs)."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(num_features, num_outputs))


class FeaturesHead(nn.Module):
    """y = head(features(x)): (batch, channels, *sides) -> (batch, num_outputs)."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class NormBeforeHead(nn.Module):
    """Stem and blocks of pre-activated layers, batch norm, ReLU, averaging, one linear layer on `width` features.

    (batch, channels, height, width) -> (batch, num_outputs)
    """

    def __init__(self, stem: nn.Module, blocks: nn.Module, width: int, num_outputs: int) -> None:
        super().__init__()
        self.stem, self.blocks = stem, blocks
        self.norm = nn.BatchNorm2d(width)
        self.head = pooled_head(width, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.blocks(self.stem(x)))))
