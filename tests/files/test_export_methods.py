"""bf.export of every method: the frozen predictor as a program and in onnxruntime, free batch, metadata, refusals."""

import importlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from frozen_cases import METHODS, example, made, needs_onnx
from torch import Tensor, nn

import bayesify as bf
from bayesify.predict.frozen import Frozen

pytestmark = pytest.mark.filterwarnings("ignore:batch norm:UserWarning")
NUM_DRAWS = 4
exporting = importlib.import_module("bayesify.files.export")


def frozen_like(model: bf.BayesianModule) -> Frozen:
    return model.freeze(NUM_DRAWS, torch.Generator().manual_seed(0))


def agree(found: dict[str, Any], expected: Any) -> None:
    """float32: some hundred sums, each rounded by 1e-7 of its terms; a difference of entropies near 1."""
    for name, value in expected._asdict().items():
        torch.testing.assert_close(torch.as_tensor(found[name]), value, rtol=1e-4, atol=1e-5)


def run_onnx(path: Path, x: Tensor) -> dict[str, Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": x.numpy()}), strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_a_program_of_every_method_says_what_predict_says(method: str, tmp_path: Path) -> None:
    model, x = made("mlp", method), example("mlp")
    bf.export(model, x[:2], tmp_path / "m.pt2", num_draws=NUM_DRAWS)
    found = torch.export.load(tmp_path / "m.pt2").module()(x)
    expected = frozen_like(model)(x)
    agree(found, expected)
    names = ["probs", "entropy", "mutual_information"]
    moments = ["output_mean", "output_var", "output_cov"] if method == "vdp" else []
    assert [*found] == names + moments
    if not (model.posterior.predicts_by_pass or method in ("vdp", "laplace")):  # other draws, or per example
        generator = torch.Generator().manual_seed(0)
        predicted = model.predict(x, NUM_DRAWS, generator=generator, batched=True)
        torch.testing.assert_close(found["probs"], predicted.probs, rtol=1e-4, atol=1e-5)


def test_a_program_of_a_linearised_network_with_batch_norm_is_written(tmp_path: Path) -> None:
    """Of the derivative of batch norm tracing left a tensor without storage, which no file takes."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    model, x = bf.bayesify(net, bf.Laplace("diag")), torch.randn(20, 4)
    bf.fit(model, [(x, torch.arange(20) % 3)], progress=False)
    bf.export(model, x[:2], tmp_path / "m.pt2", num_draws=NUM_DRAWS)
    agree(torch.export.load(tmp_path / "m.pt2").module()(x), frozen_like(model)(x))


@needs_onnx
@pytest.mark.parametrize("dims", [1, 2])
def test_a_program_of_a_linearised_convolution_is_for_any_batch(dims: int, tmp_path: Path) -> None:
    """torch's second derivative of a convolution is for one size of the batch. Strides that leave a rest, groups, a
    layer behind it."""
    torch.manual_seed(0)
    conv = (nn.Conv1d, nn.Conv2d)[dims - 1]
    parts = [conv(2, 4, 3, stride=2, padding=1), nn.Tanh(), conv(4, 4, 2, groups=2, bias=False)]
    net = nn.Sequential(*parts, nn.Flatten(), nn.Linear(4 * 2**dims, 3))
    model, x = bf.bayesify(net, bf.Laplace("kron")), torch.randn(20, 2, *[6] * dims)
    bf.fit(model, [(x, torch.arange(20) % 3)], progress=False)
    program = bf.export(model, x[:2], tmp_path / "m.onnx", num_draws=NUM_DRAWS)
    for size in (5, 1):
        agree(program.module()(x[:size]), frozen_like(model)(x[:size]))
        agree(run_onnx(tmp_path / "m.onnx", x[:size]), frozen_like(model)(x[:size]))


@needs_onnx
@pytest.mark.parametrize(
    ("case", "method"),
    [("cnn", "emp"), ("cnn", "mc_dropout"), ("transformer", "mc_vi"), ("regression", "deep_ensemble")],
)
def test_onnx_says_what_predict_says_for_any_batch(case: str, method: str, tmp_path: Path) -> None:
    model, x = made(case, method), example(case)
    program = bf.export(model, x[:1], tmp_path / "m.onnx", num_draws=NUM_DRAWS)
    expected = frozen_like(model)
    for size in (5, 1):
        agree(run_onnx(tmp_path / "m.onnx", x[:size]), expected(x[:size]))
    agree(program.module()(x), expected(x))


@needs_onnx
def test_a_normal_regression_by_moments_is_exact_in_onnx(tmp_path: Path) -> None:
    """The draws have mean and variance of the pass exactly."""
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    model = bf.bayesify(net, bf.DensityPropagation(init_std=0.2), bf.likelihood("normal", std=0.5)).eval()
    x = torch.randn(5, 4)
    bf.export(model, x[:2], tmp_path / "m.onnx")
    found = {name: torch.as_tensor(value) for name, value in run_onnx(tmp_path / "m.onnx", x).items()}
    with torch.no_grad():
        moments = model(x)
    torch.testing.assert_close(found["mean"], moments.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["epistemic"], moments.var, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["variance"], moments.var + 0.25, rtol=1e-4, atol=1e-5)


def test_files_say_what_they_hold(tmp_path: Path) -> None:
    model, x = made("mlp", "mc_vi"), example("mlp")
    names = ["cat", "dog", "é"]
    bf.export(model, x, tmp_path / "m.pt2", num_draws=3, seed=7, class_names=names)
    extra = {"bayesify.json": ""}
    torch.export.load(tmp_path / "m.pt2", extra_files=extra)
    told = json.loads(extra["bayesify.json"])
    assert json.loads(told.pop("class_names")) == names
    assert told.pop("bayesify") == bf.__version__
    assert told == {"method": "mc_vi", "likelihood": "categorical", "num_draws": "3", "seed": "7"}


@needs_onnx
def test_onnx_files_say_what_they_hold(tmp_path: Path) -> None:
    import onnxruntime

    model, x = made("mlp", "point"), example("mlp")
    bf.export(model, x, tmp_path / "m.onnx", class_names=["a", "b", "c"])
    told = onnxruntime.InferenceSession(tmp_path / "m.onnx").get_modelmeta().custom_metadata_map
    assert (told["method"], told["num_draws"]) == ("point", "1")
    assert json.loads(told["class_names"]) == ["a", "b", "c"]


def test_a_seed_fixes_the_draws(tmp_path: Path) -> None:
    model, x = made("mlp", "mc_vi"), example("mlp")
    found = [bf.export(model, x, tmp_path / "m.pt2", 3, seed=s).module()(x)["probs"] for s in (0, 0, 1)]
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    with pytest.raises(ValueError, match="seed"):
        bf.export(model, x, tmp_path / "m.pt2", seed=-1)


def test_original_units_go_in_and_come_out(tmp_path: Path) -> None:
    from bayesify.data import Normalisation

    x, y = 5 + 2 * torch.randn(20, 4), 100 + 30 * torch.randn(20, 1)
    n = Normalisation.of(x, y)
    model = made("regression", "mc_vi")
    program = bf.export(model, x[:2], tmp_path / "m.pt2", num_draws=NUM_DRAWS, normalise=n).module()
    found, expected = program(x), frozen_like(model)(n.inputs(x))
    std = n.target_std.float()
    torch.testing.assert_close(found["mean"], n.target_mean.float() + std * expected.mean)
    torch.testing.assert_close(found["variance"], std.square() * expected.variance)
    torch.testing.assert_close(found["epistemic"], std.square() * expected.epistemic)


class Last(nn.Module):
    """A recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cell(x)[0][:, -1])


class Reads(nn.Linear):
    """A network that looks at values."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * (2.0 if float(input.sum()) > 0 else 1.0)


class Fixed(nn.Linear):
    """A network for batches of three."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + torch.arange(3.0)[:, None]


def test_a_recurrent_network_is_written_one_draw_after_the_other(tmp_path: Path) -> None:
    model, x = bf.bayesify(Last(), bf.MonteCarloVI(), num_data=9).eval(), torch.randn(3, 5, 4)
    program = bf.export(model, x, tmp_path / "m.pt2", num_draws=2)
    agree(program.module()(x), model.freeze(2, torch.Generator().manual_seed(0))(x))


def test_a_network_that_cannot_be_traced_is_named_with_the_remedy(tmp_path: Path) -> None:
    model = bf.bayesify(Reads(4, 3), bf.MonteCarloVI(), num_data=9).eval()
    with pytest.raises(
        RuntimeError, match=r"torch.export cannot write .* serve model.freeze\(2\) in Python instead"
    ):
        bf.export(model, torch.randn(3, 4), tmp_path / "m.pt2", num_draws=2)
    assert not [*tmp_path.iterdir()]


def test_a_network_for_one_size_of_batch_is_written_for_it_with_a_warning(tmp_path: Path) -> None:
    model, x = bf.bayesify(Fixed(4, 3), bf.MonteCarloVI(), num_data=9).eval(), torch.randn(3, 4)
    with pytest.warns(UserWarning, match="for batches of exactly 3 examples"):
        program = bf.export(model, x, tmp_path / "m.pt2", num_draws=2)
    agree(program.module()(x), model.freeze(2, torch.Generator().manual_seed(0))(x))


@needs_onnx
def test_large_onnx_files_are_refused_or_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = made("mlp", "mc_vi"), example("mlp")
    size = model.freeze(20).num_bytes
    monkeypatch.setattr(exporting, "MOST", size // 2)
    message = (
        r"\(20 draws\), and ONNX files end at 2 GiB: export fewer draws, num_draws=9, or a program, m.pt2"
    )
    with pytest.raises(ValueError, match=message):
        bf.export(model, x, tmp_path / "m.onnx")
    monkeypatch.setattr(exporting, "MOST", math.inf)
    monkeypatch.setattr(exporting, "ONE_FILE", 1)
    with pytest.warns(UserWarning, match=r"in a second file, m.onnx.data: keep both together"):
        bf.export(model, x, tmp_path / "m.onnx", num_draws=2)
    agree(run_onnx(tmp_path / "m.onnx", x), model.freeze(2, torch.Generator().manual_seed(0))(x))
