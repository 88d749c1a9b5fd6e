"""`make`: its checks, a user's own factory, and image classifiers of transformers."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from bayesify.nets import alexnet, lenet, make, resnet, resnet_cifar

OWN = """
import torch
from torch import nn

number = 7

def sized(num_outputs, input_shape, bias=True):
    return nn.Linear(input_shape[0], num_outputs, bias=bias)

def keywords(**sizes):
    return nn.Linear(sizes["input_shape"][0], sizes["num_outputs"])

def fixed():
    return nn.Linear(5, 4)

def positional(num_outputs=2, /):
    return nn.Linear(5, num_outputs)

def broken(num_outputs):
    raise KeyError("weights")

def wrong():
    return "a net"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_nets.py").write_text(OWN)
    (tmp_path / "own_nets_broken.py").write_text("import nowhere_to_be_found")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_nets", raising=False)


@pytest.mark.parametrize("num_outputs", [0, -3, 2.0, True, "ten"])
def test_wrong_num_outputs_raises(num_outputs: object) -> None:
    with pytest.raises(ValueError, match=f"num_outputs={num_outputs!r} must be a positive integer"):
        make("mlp", num_outputs=num_outputs, input_shape=(3,))


@pytest.mark.parametrize("input_shape", [(), (3, 0, 32), (3, -1, 32), (3.0,)])
def test_wrong_input_shape_raises(input_shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"input_shape=\(.*\) must be positive integers, without the batch"):
        make("mlp", num_outputs=1, input_shape=input_shape)


def test_too_small_image_names_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"\(3, 28, 28\) is too small: .* at least 32; resize the images"):
        make("vgg16", num_outputs=10, input_shape=(3, 28, 28))


def test_input_shape_may_be_any_sequence() -> None:
    net = make("mlp", num_outputs=2, input_shape=torch.Size([3, 4]))
    assert net(torch.zeros(5, 3, 4)).shape == (5, 2)
    assert make("mlp", num_outputs=2, input_shape=[3])(torch.zeros(5, 3)).shape == (5, 2)


def test_image_networks_have_the_usual_size_of_their_data_as_default() -> None:
    assert lenet(10)(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    for net in (alexnet(10), resnet(18, 10), resnet_cifar(20, 10)):
        assert net.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_unknown_names_raise() -> None:
    with pytest.raises(ValueError, match=r"net='resnt18' does not exist; .* Did you mean 'resnet18'"):
        make("resnt18", num_outputs=10, input_shape=(3, 32, 32))
    with pytest.raises(
        ValueError, match=r"net='mlp': option='hiden' does not exist; .* Did you mean 'hidden'"
    ):
        make("mlp", num_outputs=10, input_shape=(3,), hiden=(5,))


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("factory", "num_outputs"), [("sized", 3), ("keywords", 3), ("fixed", 4), ("positional", 2)]
)
def test_own_factory_gets_what_it_accepts(factory: str, num_outputs: int) -> None:
    net = make(f"own_nets:{factory}", num_outputs=3, input_shape=(5,))
    assert net(torch.zeros(2, 5)).shape == (2, num_outputs)


@pytest.mark.usefixtures("own")
def test_own_factory_gets_options() -> None:
    assert make("own_nets:sized", num_outputs=3, input_shape=(5,), bias=False).bias is None


def test_own_class_in_a_package() -> None:
    net = make("torch.nn:Linear", num_outputs=3, input_shape=(5,), in_features=5, out_features=3)
    assert isinstance(net, nn.Linear)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        (":fixed", ValueError, "net=':fixed' must be 'package.module:factory'"),
        ("own_nets:", ValueError, "net='own_nets:' must be 'package.module:factory'"),
        ("own_netz:fixed", ValueError, "module 'own_netz' failed .*ModuleNotFoundError.*PYTHONPATH"),
        ("own_nets_broken:f", ValueError, "module 'own_nets_broken' failed .*'nowhere_to_be_found'"),
        (
            "own_nets:fixd",
            ValueError,
            "factory='fixd' does not exist; choose from broken, .* Did you mean 'fixed'",
        ),
        ("own_nets:number", TypeError, "net='own_nets:number' is a int; it must be a function or a class"),
        ("own_nets:broken", RuntimeError, r"called with \(num_outputs=3\): KeyError: 'weights'"),
        ("own_nets:wrong", TypeError, "returned a str; it must return a torch.nn.Module"),
    ],
)
def test_own_factory_errors(path: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(path, num_outputs=3, input_shape=(5,))


TINY_VIT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
TINY_RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
TINY_SWIN = {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4}


@pytest.mark.parametrize(
    ("model_type", "input_shape", "options"),
    [
        ("vit", (1, 32, 48), TINY_VIT),
        ("resnet", (2, 32, 32), TINY_RESNET),
        ("swin", (3, 32, 32), TINY_SWIN),
        ("deit", (3, 32, 32), TINY_VIT),
        ("siglip", (1, 32, 32), {"vision_config": TINY_VIT | {"patch_size": 16}}),
    ],
)
def test_transformers_classifier(
    model_type: str, input_shape: tuple[int, ...], options: dict[str, object]
) -> None:
    pytest.importorskip("transformers")
    net = make(f"transformers:{model_type}", num_outputs=5, input_shape=input_shape, **options)
    assert net(torch.zeros(2, *input_shape)).shape == (2, 5)


def test_transformers_attention_can_be_chosen() -> None:
    pytest.importorskip("transformers")
    options = {**TINY_VIT, "attn_implementation": "eager"}
    net = make("transformers:vit", num_outputs=5, input_shape=(3, 32, 32), **options)
    assert net.get_submodule("net").config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("model_type", "input_shape", "options", "message"),
    [
        ("vti", (3, 32, 32), {}, "model type='vti' does not exist; choose from .* Did you mean 'vit'"),
        ("bert", (3, 32, 32), {}, "model type='bert' does not exist; choose from .*vit"),
        ("vit", (13,), {}, r"input_shape=\(13,\) must be \(channels, height, width\)"),
        ("vit", (3, 32, 32), {"hiden_size": 8}, "option='hiden_size' .* Did you mean 'hidden_size'"),
        ("vit", (3, 32, 32), {"attn_implementation": "a/kernel"}, "choose from eager, sdpa"),
        ("textnet", (1, 32, 32), {}, "takes 3 channels only; repeat a single channel"),
    ],
)
def test_transformers_errors(
    model_type: str, input_shape: tuple[int, ...], options: dict[str, object], message: str
) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ValueError, match=message):
        make(f"transformers:{model_type}", num_outputs=5, input_shape=input_shape, **options)


def test_missing_transformers_says_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"'transformers:vit' needs .* pip install transformers"):
        make("transformers:vit", num_outputs=5, input_shape=(3, 32, 32))
