"""bf.export: programs of the frozen predictor of every method, which need no bayesify."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from frozen_cases import needs_onnx
from torch import Tensor, nn

import bayesify as bf
from bayesify.nets import make

NETS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "lenet_small": ((1, 28, 28), {}),
    "resnet20": ((3, 16, 16), {}),
    "vit_small_patch4": ((3, 16, 16), {"dim": 32, "depth": 1, "heads": 4}),
}


def propagated(name: str, **options: Any) -> tuple[bf.BayesianModule, Tensor]:
    shape, net_options = NETS[name]
    torch.manual_seed(0)
    net = make(name, num_outputs=2, input_shape=shape, **net_options)
    return bf.bayesify(net, bf.DensityPropagation(init_std=0.2, **options)).eval(), torch.randn(5, *shape)


def check(found: Any, model: bf.BayesianModule, x: Any) -> None:
    """Mean, variance and covariance, with an error of float32 over some hundred operations."""
    if isinstance(found, dict):
        found = [value for name, value in found.items() if name.startswith("output_")]
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(x))
    for ours, theirs in zip(expected, found, strict=True):
        torch.testing.assert_close(
            torch.as_tensor(theirs), ours, rtol=1e-4, atol=1e-5 * float(ours.abs().max())
        )


@pytest.mark.parametrize(("name", "batch"), [("lenet_small", 1), ("resnet20", 2), ("vit_small_patch4", 2)])
def test_a_program_gives_mean_and_variance_for_any_batch(name: str, batch: int, tmp_path: Path) -> None:
    model, x = propagated(name)
    model.train()
    bf.export(model, x[:batch], tmp_path / "model.pt2")
    assert model.training
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for size in (5, 1):
        check(loaded(x[:size]), model.eval(), x[:size])


@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.GELU, nn.SiLU])
def test_full_covariance_has_the_covariance_as_second_output(
    activation: type[nn.Module], tmp_path: Path
) -> None:
    net = nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 2))
    model = bf.bayesify(net, bf.DensityPropagation(covariance="full"))
    x = torch.randn(4, 3)
    program = bf.export(model, x, tmp_path / "model.pt2")
    check(program.module()(x), model, x)


def test_noise_in_the_input_is_a_second_input(tmp_path: Path) -> None:
    model = bf.bayesify(nn.Linear(3, 2), bf.DensityPropagation())
    x = bf.Moments(torch.randn(4, 3), torch.rand(4, 3))
    program = bf.export(model, x, tmp_path / "model.pt2")
    with torch.no_grad():
        expected = model(x)
    torch.testing.assert_close(program.module()(*x)["output_var"], expected.var)


def test_bags_of_words_are_exported_for_any_batch(tmp_path: Path) -> None:
    model = bf.bayesify(nn.EmbeddingBag(9, 4), bf.DensityPropagation()).eval()
    program = bf.export(model, torch.randint(9, (6, 5)), tmp_path / "model.pt2")
    words = torch.randint(9, (2, 5))
    check(program.module()(words), model, words)


def test_a_network_that_takes_keywords(tmp_path: Path) -> None:
    class Named(nn.Linear):
        def forward(self, input: Tensor, offset: Tensor) -> Tensor:
            return super().forward(input) + offset

    model = bf.bayesify(Named(3, 2), bf.DensityPropagation()).eval()
    x = {"input": torch.randn(4, 3), "offset": torch.randn(4, 2)}
    program = bf.export(model, x, tmp_path / "model.pt2")
    check(program.module()(*x.values()), model, x)


@needs_onnx
@pytest.mark.parametrize("name", ["lenet_small", "vit_small_patch4"])
def test_onnx_gives_the_same_mean_and_variance(name: str, tmp_path: Path) -> None:
    import onnxruntime

    model, x = propagated(name)
    bf.export(model, x[:2], tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for size in (5, 3):
        found = session.run(["output_mean", "output_var", "output_cov"], {"x": x[:size].numpy()})
        check(found, model, x[:size])


@needs_onnx
def test_onnx_names_noisy_inputs_and_the_batch(tmp_path: Path) -> None:
    import onnxruntime

    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    model = bf.bayesify(net, bf.DensityPropagation(init_std=0.2)).eval()
    x = bf.Moments(torch.randn(4, 3), torch.rand(4, 3))
    bf.export(model, x, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [(put.name, put.shape) for put in session.get_inputs()] == [
        ("x_mean", ["batch", 3]),
        ("x_var", ["batch", 3]),
    ]
    outputs = ["output_mean", "output_var", "output_cov"]
    check(session.run(outputs, {"x_mean": x.mean.numpy(), "x_var": x.var.numpy()}), model, x)


@needs_onnx
def test_onnx_with_full_covariance_names_it(tmp_path: Path) -> None:
    import onnxruntime

    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model = bf.bayesify(net, bf.DensityPropagation(covariance="full")).eval()
    x = torch.randn(4, 3)
    bf.export(model, x, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    check(session.run(["output_mean", "output_var", "output_cov"], {"x": x.numpy()}), model, x)


POOLS = {
    "average, padded": nn.AvgPool2d(3, 2, 1),
    "max": nn.MaxPool2d(3, 2),
    "strided": nn.Conv2d(4, 4, 3, stride=2, dilation=2),
    "transposed": nn.ConvTranspose2d(4, 4, 2, stride=2),
    "layer norm": nn.LayerNorm((4, 8, 8)),
}


@needs_onnx
@pytest.mark.parametrize("name", POOLS)
def test_onnx_has_the_derivatives_of(name: str, tmp_path: Path) -> None:
    import onnxruntime

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), POOLS[name], nn.Flatten(2), nn.LazyLinear(3), nn.Flatten()
    )
    x = torch.rand(3, 1, 8, 8)
    net(x)
    model = bf.bayesify(net, bf.DensityPropagation(init_std=0.2)).eval()
    bf.export(model, x, tmp_path / "model.onnx")
    outputs = ["output_mean", "output_var", "output_cov"]
    found = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(outputs, {"x": x[:2].numpy()})
    check(found, model, x[:2])


@needs_onnx
def test_onnx_of_many_classes_has_the_covariance_of_the_largest(tmp_path: Path) -> None:
    import onnxruntime

    torch.manual_seed(0)
    model = bf.bayesify(nn.Linear(4, 120), bf.DensityPropagation(init_std=0.2)).eval()
    x = torch.randn(3, 4)
    bf.export(model, x, tmp_path / "model.onnx")
    names = ["output_mean", "output_var", "output_top_indices", "output_top_cov"]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(names, {"x": x[:2].numpy()})
    assert torch.equal(torch.as_tensor(found.pop(2)), model(x[:2]).top.indices)
    with torch.no_grad():
        expected = model(x[:2])
    for ours, theirs in zip((expected.mean, expected.var, expected.top.cov), found, strict=True):
        torch.testing.assert_close(torch.as_tensor(theirs), ours, rtol=1e-4, atol=1e-6)


def test_where_examples_meet_the_variances_of_one_pass_are_written(tmp_path: Path) -> None:
    class Meeting(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            h = super().forward(input)
            return h + h.mean(0)

    model, x = bf.bayesify(Meeting(3, 2), bf.DensityPropagation()).eval(), torch.randn(4, 3)
    with pytest.warns(UserWarning, match="depend on others"):
        program = bf.export(model, x, tmp_path / "model.pt2")
    assert "output_cov" not in program.module()(x)
    with pytest.warns(UserWarning, match="depend on others"):
        check(program.module()(x), model, x)


@needs_onnx
def test_an_onnx_file_is_replaced_whole_or_not_at_all(monkeypatch: Any, tmp_path: Path) -> None:
    def full(self: Any, path: Path) -> None:
        path.write_bytes(b"half a file")
        raise OSError("No space left on device")

    path = tmp_path / "model.onnx"
    model = bf.bayesify(nn.Linear(3, 2), bf.DensityPropagation())
    bf.export(model, torch.randn(2, 3), path)
    before = path.read_bytes()
    monkeypatch.setattr(torch.onnx.ONNXProgram, "save", full)
    with pytest.raises(OSError, match="No space left"):
        bf.export(model, torch.randn(2, 3), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_onnx_without_its_packages_says_what_to_install(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    model = bf.bayesify(nn.Linear(3, 2), bf.DensityPropagation())
    with pytest.raises(ImportError, match="pip install onnx onnxscript"):
        bf.export(model, torch.randn(2, 3), tmp_path / "model.onnx")


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    model = bf.bayesify(nn.Linear(3, 2), bf.DensityPropagation())
    with pytest.raises(ValueError, match="must end in .pt2 or .onnx"):
        bf.export(model, torch.randn(2, 3), tmp_path / "model.pb")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": nn.Linear(2, 2)}, "model=Linear must be what bf.bayesify returned"),
        ({"path": 3}, "path=3 must be the name of a file"),
        ({"normalise": (0.0, 1.0)}, r"normalise=\(0.0, 1.0\) must be a bf.data.Normalisation"),
    ],
)
def test_arguments_of_another_kind_are_named(wrong: dict[str, Any], said: str, tmp_path: Path) -> None:
    model = bf.bayesify(nn.Linear(2, 2), bf.Point())
    given = {"model": model, "x": torch.zeros(1, 2), "path": tmp_path / "model.pt2", **wrong}
    with pytest.raises(TypeError, match=said):
        bf.export(**given)


def test_freeze_names_a_generator_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"generator=3 must be a torch.Generator"):
        bf.bayesify(nn.Linear(2, 2), bf.MonteCarloVI()).freeze(generator=3)
