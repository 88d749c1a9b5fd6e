"""Parameter counts against the published ones, on the meta device: nothing is allocated."""

import pytest
import torch
from torch import nn

from bayesify.nets import NETS, make

IMAGENET = (3, 224, 224)
CIFAR = (3, 32, 32)


def on_meta(name: str, num_outputs: int, input_shape: tuple[int, ...], **options: object) -> nn.Module:
    with torch.device("meta"):
        return make(name, num_outputs=num_outputs, input_shape=input_shape, **options)


def count(net: nn.Module, *kinds: type[nn.Module]) -> int:
    """Parameters of the net, or of its modules of some kinds."""
    modules = [module for module in net.modules() if isinstance(module, kinds)] if kinds else [net]
    return sum(p.numel() for module in modules for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("alexnet", 61_100_840),
        ("vgg11", 132_863_336),
        ("vgg13", 133_047_848),
        ("vgg16", 138_357_544),
        ("vgg19", 143_667_240),
        ("vgg11_bn", 132_868_840),
        ("vgg13_bn", 133_053_736),
        ("vgg16_bn", 138_365_992),
        ("vgg19_bn", 143_678_248),
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
        ("densenet121", 7_978_856),
        ("densenet161", 28_681_000),
        ("densenet169", 14_149_480),
        ("densenet201", 20_013_928),
        ("vit_tiny", 5_717_416),
        ("vit_s16", 22_050_664),
        ("vit_b16", 86_567_656),
    ],
)
def test_imagenet_counts(name: str, published: int) -> None:
    assert count(on_meta(name, 1000, IMAGENET)) == published


@pytest.mark.parametrize(("depth", "total"), [(20, 269_722), (56, 853_018), (110, 1_727_962)])
def test_cifar_resnet_counts(depth: int, total: int) -> None:
    """Option A has no weights in its shortcuts, so with n = (depth − 2) / 6 blocks a stage, 10 classes:

    stem 3·16·9; stages 16, 32, 64 wide: 2n convolutions each, the first from the width before; 2 per
    channel for the 1 + 6n batch norms; 64·10 + 10 at the end.
    """
    n = (depth - 2) // 6
    convs = 9 * (3 * 16 + 2 * n * 16**2 + 16 * 32 + (2 * n - 1) * 32**2 + 32 * 64 + (2 * n - 1) * 64**2)
    norms = 2 * (16 + 2 * n * (16 + 32 + 64))
    assert convs + norms + 650 == total
    assert count(on_meta(f"resnet{depth}", 10, CIFAR)) == total


@pytest.mark.parametrize(("depth", "stages"), [(18, (2, 2, 2, 2)), (34, (3, 4, 6, 3))])
def test_preact_resnet_counts(depth: int, stages: tuple[int, ...]) -> None:
    """Pre-activation against post-activation, basic blocks: the same convolutions, other batch norms.

    Post: 64 channels in the stem, two norms per block at its width w, one per projection (128, 256, 512).
    Pre: per block one at its input's width and one at w (so w / 2 less where a stage begins), 512 at the end.
    """
    post = 64 + sum(2 * n * 64 * 2**s for s, n in enumerate(stages)) + 128 + 256 + 512
    pre = sum((2 * n * 64 * 2**s) - (32 * 2**s if s else 0) for s, n in enumerate(stages)) + 512
    difference = count(on_meta(f"resnet{depth}", 10, CIFAR)) - count(
        on_meta(f"preact_resnet{depth}", 10, CIFAR)
    )
    assert difference == 2 * (post - pre) == 1792


def test_resnet18_parts_of_paper_2() -> None:
    net = on_meta("resnet18", 1000, IMAGENET)
    assert count(net, nn.Conv2d) == 11_166_912
    assert count(net, nn.BatchNorm2d) == 9_600
    assert count(net, nn.Linear) == 513_000


def test_pyramidnet110_parts_of_paper_2() -> None:
    net = on_meta("pyramidnet110", 100, CIFAR)
    assert count(net) == 28_511_307
    assert count(net, nn.BatchNorm2d) == 49_798
    assert count(net, nn.Linear) == 28_700


def test_mlp_of_paper_2() -> None:
    """L = H = 100: L·H² weights and (L − 1)·H biases; batch norm trades H biases for 2 H numbers a layer."""
    square = {"hidden": (100,) * 99, "output_bias": False}
    assert count(on_meta("mlp", 100, (100,), **square)) == 1_009_900
    assert count(on_meta("mlp", 100, (100,), **square, batch_norm=True)) == 1_009_900 + 9_900


def test_lenet_counts() -> None:
    """Caffe: 20·25 + 20, 50·20·25 + 50, 500·800 + 500, 10·500 + 10. 1998's widths: 61,706 on 32×32."""
    assert count(on_meta("lenet", 10, (1, 28, 28))) == 520 + 25_050 + 400_500 + 5_010
    assert count(on_meta("lenet_small", 10, (1, 32, 32))) == 61_706


def test_vgg_like_count() -> None:
    """VGG-16's convolutions 14,714,688, batch norms 2·4,224, dense 512·512 + 512, its norm 1,024, 5,130."""
    assert count(on_meta("vgg_like", 10, CIFAR)) == 14_714_688 + 8_448 + 262_656 + 1_024 + 5_130


def test_unet3d_encoder_count() -> None:
    """27·(1·16 + 16·32 + 32·64 + 64·128 + 128·256), batch norms 2·496, 256·2 + 2."""
    assert count(on_meta("unet3d_encoder", 2, (1, 105, 127, 105))) == 27 * 43_536 + 992 + 514


@pytest.mark.parametrize("name", [name for name in NETS if len(NETS[name].smallest) == 3])
def test_full_size_images_run(name: str) -> None:
    """224×224, three channels: shapes fit all the way (the stems and heads for large images)."""
    net = on_meta(name, 7, IMAGENET)
    assert net(torch.empty(2, *IMAGENET, device="meta")).shape == (2, 7)
