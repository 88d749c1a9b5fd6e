"""What is particular to one family."""

import doctest
import importlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bayesify.nets import NETS, make
from bayesify.nets.lenet import feature_size
from bayesify.nets.parts import ACTIVATIONS
from bayesify.nets.pyramidnet import widths
from bayesify.nets.resnet import PadShortcut
from bayesify.nets.vit import Attention

CIFAR = (3, 32, 32)


def layers(net: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    return [module for module in net.modules() if isinstance(module, kind)]


def on_meta(name: str, input_shape: tuple[int, ...], **options: object) -> nn.Module:
    with torch.device("meta"):
        return make(name, num_outputs=10, input_shape=input_shape, **options)


FILES = "__init__ mlp lenet alexnet vgg resnet preact_resnet densenet pyramidnet vit unet3d_encoder"


@pytest.mark.parametrize("file", FILES.split())
def test_docstring_examples_run(file: str) -> None:
    module = importlib.import_module(f"bayesify.nets.{file}")
    results = doctest.testmod(module, extraglobs={"torch": torch})
    assert results.attempted > 0
    assert results.failed == 0


# mlp


def test_mlp_layers_in_order() -> None:
    net = on_meta(
        "mlp", (13,), hidden=(50,), batch_norm=True, input_norm=True, activation="tanh", dropout=0.1
    )
    kinds = [nn.Flatten, nn.BatchNorm1d, nn.Linear, nn.BatchNorm1d, nn.Tanh, nn.Dropout, nn.Linear]
    assert [type(module) for module in net.children()] == kinds


def test_mlp_without_hidden_layers_is_linear() -> None:
    net = make("mlp", num_outputs=2, input_shape=(2, 3), hidden=())
    assert [type(module) for module in net.children()] == [nn.Flatten, nn.Linear]
    assert net(torch.zeros(5, 2, 3)).shape == (5, 2)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_mlp_takes_every_activation(name: str) -> None:
    net = make("mlp", num_outputs=2, input_shape=(3,), hidden=(4,), activation=name)
    assert net(torch.randn(5, 3)).isfinite().all()


def test_abs_is_the_absolute_value() -> None:
    assert torch.equal(ACTIVATIONS["abs"]()(torch.tensor([-2.0, 3.0])), torch.tensor([2.0, 3.0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": (50, 0)}, r"hidden=\(50, 0\) must be a list of whole numbers of at least 1"),
        ({"activation": "rulu"}, "activation='rulu' does not exist; choose from .* Did you mean 'relu'"),
        ({"dropout": 1.0}, r"dropout=1\.0 must be a number of at least 0 and below 1"),
    ],
)
def test_mlp_errors(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make("mlp", num_outputs=1, input_shape=(3,), **options)


# lenet


@pytest.mark.parametrize(("size", "left"), [(16, 1), (28, 4), (32, 5)])
def test_lenet_feature_size(size: int, left: int) -> None:
    assert feature_size(size) == left
    net = make("lenet", num_outputs=10, input_shape=(1, size, size + 4))
    features = net.features(torch.zeros(1, 1, size, size + 4))
    assert features.shape == (1, 50, left, feature_size(size + 4))


def test_lenet_options() -> None:
    options = {"activation": "abs", "conv_activation": "identity", "batch_norm": True, "dropout": 0.5}
    net = on_meta("lenet", (1, 28, 28), **options)
    assert [len(layers(net, kind)) for kind in (nn.Identity, ACTIVATIONS["abs"], nn.Dropout)] == [2, 1, 1]
    assert [len(layers(net, kind)) for kind in (nn.BatchNorm2d, nn.BatchNorm1d, nn.ReLU)] == [2, 1, 0]


# alexnet and vgg


@pytest.mark.parametrize(
    ("name", "option"),
    [("resnet20", "width"), ("unet3d_encoder", "width"), ("vit_tiny", "patch"), ("vit_tiny", "heads")],
)
def test_sizes_below_one_raise(name: str, option: str) -> None:
    with pytest.raises(ValueError, match=f"{option}=0 must be a whole number of at least 1, e.g."):
        on_meta(name, NETS[name].smallest, **{option: 0})


@pytest.mark.parametrize("name", ["alexnet", "vgg11", "vgg16_bn"])
def test_heads(name: str) -> None:
    """The dense head from 224 pixels on, one linear layer below, unless asked otherwise."""
    sizes = [(224, "auto", 3), (160, "auto", 1), (160, "imagenet", 3), (224, "compact", 1)]
    for size, head, num_linear in sizes:
        assert len(layers(on_meta(name, (3, size, size), head=head), nn.Linear)) == num_linear


def test_wrong_head_raises() -> None:
    with pytest.raises(ValueError, match="head='big' does not exist; choose from auto, compact, imagenet"):
        on_meta("vgg11", CIFAR, head="big")


def test_vgg_like_dropout_rates() -> None:
    net = on_meta("vgg_like", CIFAR)
    rates = [module.p for module in layers(net, nn.Dropout)]
    assert rates == [0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.5, 0.5]
    assert not layers(on_meta("vgg_like", CIFAR, dropout=False), nn.Dropout)


# residual and dense nets


@pytest.mark.parametrize("name", ["resnet18", "preact_resnet50", "densenet121"])
def test_stems(name: str) -> None:
    """Max pooling only in the ImageNet stem, which "auto" takes from 64 pixels on."""
    for size, stem, num_pools in [(63, "auto", 0), (64, "auto", 1), (32, "imagenet", 1), (224, "cifar", 0)]:
        assert len(layers(on_meta(name, (3, size, size), stem=stem), nn.MaxPool2d)) == num_pools


@pytest.mark.parametrize("name", ["resnet18", "preact_resnet18", "densenet121"])
def test_stem_errors(name: str) -> None:
    with pytest.raises(ValueError, match="stem='mnist' does not exist; choose from auto, cifar, imagenet"):
        on_meta(name, CIFAR, stem="mnist")
    with pytest.raises(ValueError, match=r"\(3, 31, 31\) is too small: .* 32; .* take stem='cifar'"):
        on_meta(name, (3, 31, 31), stem="imagenet")


def test_pad_shortcut_subsamples_and_pads_with_zeros() -> None:
    x = torch.randn(2, 4, 6, 5)
    out = PadShortcut(4, 7, 2)(x)
    assert torch.equal(out[:, :4], x[:, :, ::2, ::2])
    assert torch.equal(out[:, 4:], torch.zeros(2, 3, 3, 3))


def test_cifar_resnet_options() -> None:
    """Projections replace the two padded shortcuts; `width` scales all stages."""
    assert len(layers(on_meta("resnet20", CIFAR), PadShortcut)) == 2
    assert not layers(on_meta("resnet20", CIFAR, shortcut="projection"), PadShortcut)
    assert layers(on_meta("resnet20", CIFAR, width=32), nn.Linear)[0].in_features == 128
    with pytest.raises(ValueError, match="shortcut='none' does not exist; choose from pad, projection"):
        on_meta("resnet20", CIFAR, shortcut="none")


@pytest.mark.parametrize("name", ["resnet20", "preact_resnet18", "pyramidnet", "densenet121"])
def test_odd_sizes_run(name: str) -> None:
    net = on_meta(name, (3, 27, 31))
    assert net(torch.empty(2, 3, 27, 31, device="meta")).shape == (2, 10)


def test_pyramid_widths() -> None:
    assert widths(110, 270) == [16 + 5 * i for i in range(55)]
    assert widths(20, 48)[-1] == 64


@pytest.mark.parametrize(("option", "value"), [("depth", 19), ("depth", 2), ("alpha", -1.0)])
def test_pyramidnet_errors(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{option}={value} must be"):
        on_meta("pyramidnet", CIFAR, **{option: value})


# vit


def test_attention_is_softmax_of_scaled_products() -> None:
    torch.manual_seed(0)
    attention, x = Attention(6, 2), torch.randn(3, 5, 6)
    query, key, value = attention.query(x), attention.key(x), attention.value(x)
    heads = []
    for part in (slice(0, 3), slice(3, 6)):
        scores = query[..., part] @ key[..., part].transpose(1, 2) / 3**0.5
        heads.append(F.softmax(scores, dim=-1) @ value[..., part])
    torch.testing.assert_close(attention(x), attention.join(torch.cat(heads, dim=-1)))


def test_vit_small_form_of_paper_3() -> None:
    net = make("vit_small_patch4", num_outputs=10, input_shape=(1, 28, 28), patch=7, dim=64, depth=4, heads=4)
    assert net(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert net.get_parameter("embedding.positions").shape == (1, 17, 64)


def test_vit_dropout_acts_in_training_only() -> None:
    options = {"dim": 16, "depth": 1, "heads": 2, "dropout": 0.5}
    net = make("vit_small_patch4", num_outputs=4, input_shape=(1, 8, 8), **options)
    x = torch.randn(2, 1, 8, 8)
    assert not torch.equal(net(x), net(x))
    assert torch.equal(net.eval()(x), net(x))


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((3, 30, 32), {}, r"input_shape=\(3, 30, 32\): height and width must be multiples of patch=4"),
        (CIFAR, {"heads": 5}, "dim=384 must be a multiple of heads=5; choose e.g. dim=380"),
    ],
)
def test_vit_errors(shape: tuple[int, ...], options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        on_meta("vit_small_patch4", shape, **options)


# unet3d_encoder


@pytest.mark.parametrize(
    ("sizes", "left"),
    [
        ((105, 127, 105), (1, 1, 1)),
        ((64, 64, 64), (1, 1, 1)),
        ((28, 28, 28), (1, 1, 1)),
        ((8, 28, 300), (1, 1, 2)),
    ],
)
def test_unet3d_encoder_sizes(sizes: tuple[int, ...], left: tuple[int, ...]) -> None:
    """Fig. 9 ends at 1×1×1 on 105×127×105; no dimension vanishes on smaller volumes."""
    net = on_meta("unet3d_encoder", (1, *sizes))
    x = torch.empty(2, 1, *sizes, device="meta")
    assert net.get_submodule("features")(x).shape == (2, 256, *left)
    assert net(x).shape == (2, 10)


def test_unet3d_encoder_width() -> None:
    assert layers(on_meta("unet3d_encoder", (1, 28, 28, 28), width=4), nn.Linear)[0].in_features == 64
