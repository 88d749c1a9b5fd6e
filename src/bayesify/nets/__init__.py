"""Networks by name, one family per file. Adding one: a file here and a line in NETS.

    net = make("resnet18", num_outputs=10, input_shape=(3, 32, 32))
    net = make("my_package.my_module:my_net", num_outputs=10, input_shape=(3, 32, 32))
    net = make("transformers:vit", num_outputs=10, input_shape=(3, 224, 224))
    net = alexnet(num_outputs=10)  # the factories themselves; images are 3×32×32 unless input_shape says otherwise

All are plain `nn.Module`s that take a batch of inputs and return (batch, num_outputs). Every submodule that
owns parameters has `reset_parameters`, which draws them again as at the start.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from bayesify.names import lookup
from bayesify.nets.alexnet import alexnet
from bayesify.nets.densenet import densenet
from bayesify.nets.foreign import from_path, from_transformers
from bayesify.nets.lenet import lenet, lenet_small
from bayesify.nets.mlp import mlp
from bayesify.nets.preact_resnet import preact_resnet
from bayesify.nets.pyramidnet import pyramidnet, pyramidnet110
from bayesify.nets.resnet import resnet, resnet_cifar
from bayesify.nets.resnetpp import resnetpp, resnetpp_cifar
from bayesify.nets.unet3d_encoder import unet3d_encoder
from bayesify.nets.vgg import vgg, vgg_like
from bayesify.nets.vit import vit


@dataclass(frozen=True)
class Net:
    """One registered network.

    build: called as build(num_outputs=…, input_shape=…, **options).
    about: one line for `bayesify show nets`.
    smallest: the smallest input it takes with its default options, without the batch dimension.
    """

    build: Callable[..., nn.Module]
    about: str
    smallest: tuple[int, ...]

    @property
    def options(self) -> dict[str, Any]:
        """The names of its options with their defaults."""
        parameters = inspect.signature(self.build).parameters
        return {k: p.default for k, p in parameters.items() if k not in ("num_outputs", "input_shape")}


NETS: dict[str, Net] = {
    "mlp": Net(mlp, "multi-layer perceptron for any input, free layer sizes", (1,)),
    "lenet": Net(lenet, "LeNet-5 in Caffe's widths, 20-50-500", (1, 16, 16)),
    "lenet_small": Net(lenet_small, "LeNet-5 in the widths of 1998, 6-16-120-84", (1, 16, 16)),
    "alexnet": Net(alexnet, "AlexNet, compact below 224 pixels", (3, 29, 29)),
    "vgg11": Net(partial(vgg, 11, False), "VGG-11, compact head below 224 pixels", (3, 32, 32)),
    "vgg13": Net(partial(vgg, 13, False), "VGG-13, compact head below 224 pixels", (3, 32, 32)),
    "vgg16": Net(partial(vgg, 16, False), "VGG-16, compact head below 224 pixels", (3, 32, 32)),
    "vgg19": Net(partial(vgg, 19, False), "VGG-19, compact head below 224 pixels", (3, 32, 32)),
    "vgg11_bn": Net(partial(vgg, 11, True), "VGG-11 with batch norm", (3, 32, 32)),
    "vgg13_bn": Net(partial(vgg, 13, True), "VGG-13 with batch norm", (3, 32, 32)),
    "vgg16_bn": Net(partial(vgg, 16, True), "VGG-16 with batch norm", (3, 32, 32)),
    "vgg19_bn": Net(partial(vgg, 19, True), "VGG-19 with batch norm", (3, 32, 32)),
    "vgg_like": Net(vgg_like, "the CIFAR net of the variance-networks paper, with dropout", (3, 32, 32)),
    "resnet18": Net(partial(resnet, 18), "ResNet-18, ImageNet stem from 64 pixels on", (3, 8, 8)),
    "resnet34": Net(partial(resnet, 34), "ResNet-34, ImageNet stem from 64 pixels on", (3, 8, 8)),
    "resnet50": Net(partial(resnet, 50), "ResNet-50, ImageNet stem from 64 pixels on", (3, 8, 8)),
    "resnet101": Net(partial(resnet, 101), "ResNet-101, ImageNet stem from 64 pixels on", (3, 8, 8)),
    "resnet152": Net(partial(resnet, 152), "ResNet-152, ImageNet stem from 64 pixels on", (3, 8, 8)),
    "resnet20": Net(partial(resnet_cifar, 20), "ResNet-20 for CIFAR, 0.27 M weights", (3, 4, 4)),
    "resnet32": Net(partial(resnet_cifar, 32), "ResNet-32 for CIFAR, 0.46 M weights", (3, 4, 4)),
    "resnet44": Net(partial(resnet_cifar, 44), "ResNet-44 for CIFAR, 0.66 M weights", (3, 4, 4)),
    "resnet56": Net(partial(resnet_cifar, 56), "ResNet-56 for CIFAR, 0.85 M weights", (3, 4, 4)),
    "resnet110": Net(partial(resnet_cifar, 110), "ResNet-110 for CIFAR, 1.7 M weights", (3, 4, 4)),
    "resnetpp20": Net(
        partial(resnetpp_cifar, 20), "ResNet++-20 for CIFAR, no batch norm, for samplers", (3, 4, 4)
    ),
    "resnetpp32": Net(
        partial(resnetpp_cifar, 32), "ResNet++-32 for CIFAR, no batch norm, for samplers", (3, 4, 4)
    ),
    "resnetpp44": Net(
        partial(resnetpp_cifar, 44), "ResNet++-44 for CIFAR, no batch norm, for samplers", (3, 4, 4)
    ),
    "resnetpp56": Net(
        partial(resnetpp_cifar, 56), "ResNet++-56 for CIFAR, no batch norm, for samplers", (3, 4, 4)
    ),
    "resnetpp50": Net(partial(resnetpp, 50), "ResNet++-50, no batch norm, for samplers", (3, 8, 8)),
    "preact_resnet18": Net(partial(preact_resnet, 18), "pre-activation ResNet-18", (3, 8, 8)),
    "preact_resnet34": Net(partial(preact_resnet, 34), "pre-activation ResNet-34", (3, 8, 8)),
    "preact_resnet50": Net(partial(preact_resnet, 50), "pre-activation ResNet-50", (3, 8, 8)),
    "preact_resnet101": Net(partial(preact_resnet, 101), "pre-activation ResNet-101", (3, 8, 8)),
    "preact_resnet152": Net(partial(preact_resnet, 152), "pre-activation ResNet-152", (3, 8, 8)),
    "densenet121": Net(partial(densenet, 121), "DenseNet-121, growth 32", (3, 8, 8)),
    "densenet161": Net(partial(densenet, 161), "DenseNet-161, growth 48", (3, 8, 8)),
    "densenet169": Net(partial(densenet, 169), "DenseNet-169, growth 32", (3, 8, 8)),
    "densenet201": Net(partial(densenet, 201), "DenseNet-201, growth 32", (3, 8, 8)),
    "pyramidnet": Net(pyramidnet, "PyramidNet of basic blocks, free depth and alpha", (3, 4, 4)),
    "pyramidnet110": Net(pyramidnet110, "PyramidNet-110, alpha 270", (3, 4, 4)),
    "vit_tiny": Net(partial(vit, patch=16, dim=192, heads=3), "ViT-Ti/16", (3, 16, 16)),
    "vit_s16": Net(partial(vit, patch=16, dim=384, heads=6), "ViT-S/16", (3, 16, 16)),
    "vit_b16": Net(partial(vit, patch=16, dim=768, heads=12), "ViT-B/16", (3, 16, 16)),
    "vit_small_patch4": Net(partial(vit, patch=4, dim=384, heads=6), "ViT-S/4, for 32x32 images", (3, 4, 4)),
    "unet3d_encoder": Net(unet3d_encoder, "3-D U-Net encoder for volumes (c, d, h, w)", (1, 8, 8, 8)),
}

TRANSFORMERS = "transformers:"


def make(name: str, *, num_outputs: int, input_shape: Sequence[int], **options: Any) -> nn.Module:
    """A network by name: (batch, *input_shape) -> (batch, num_outputs).

    name: a key of NETS, "package.module:factory" for your own, or "transformers:<model_type>".
    num_outputs: classes, or targets of a regression.
    input_shape: of one example: (features,), (channels, height, width) or (channels, depth, height, width).
    options: of the net; `NETS[name].options` lists them.

    >>> make("lenet", num_outputs=10, input_shape=(1, 28, 28))(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    if not is_count(num_outputs):
        raise ValueError(f"num_outputs={num_outputs!r} must be a positive integer: classes, or targets")
    shape = tuple(input_shape)
    if not shape or not all(is_count(size) for size in shape):
        raise ValueError(
            f"input_shape={input_shape!r} must be positive integers, without the batch dimension, "
            f"e.g. (3, 32, 32) for images or (13,) for features"
        )
    if name.startswith(TRANSFORMERS):
        return from_transformers(name.removeprefix(TRANSFORMERS), num_outputs, shape, options)
    if is_outside(name):
        return from_path(name, num_outputs, shape, options)
    net = lookup(NETS, name, "net")
    for option in options:
        lookup(net.options, option, f"net={name!r}: option")
    return net.build(num_outputs=num_outputs, input_shape=shape, **options)


def is_outside(name: str) -> bool:
    """Is the network code from outside of this package, which making it imports and calls?"""
    return ":" in name


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


__all__ = [
    "NETS",
    "TRANSFORMERS",
    "Net",
    "alexnet",
    "densenet",
    "is_outside",
    "lenet",
    "lenet_small",
    "make",
    "mlp",
    "preact_resnet",
    "pyramidnet",
    "pyramidnet110",
    "resnet",
    "resnet_cifar",
    "resnetpp",
    "resnetpp_cifar",
    "unet3d_encoder",
    "vgg",
    "vgg_like",
    "vit",
]
