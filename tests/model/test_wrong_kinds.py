"""Arguments of the wrong kind: what is plain is converted, the rest named with what to give instead."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.checks import as_tensor

X, Y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])


def net(out: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, out)


def model(likelihood: str = "categorical", out: int = 2) -> bf.BayesianModule:
    return bf.bayesify(net(out), "point", likelihood, num_data=4)


@pytest.mark.parametrize("convert", [np.asarray, torch.Tensor.tolist, lambda y: tuple(y.tolist())])
def test_targets_may_be_lists_or_arrays(convert: Any) -> None:
    m = model()
    assert m.loss(X, convert(Y)).total == m.loss(X, Y).total
    assert torch.equal(m.predict(X).log_prob(convert(Y)), m.predict(X).log_prob(Y))
    assert bf.evaluate(m, [(X, convert(Y))]) == bf.evaluate(m, [(X, Y)])
    bf.fit(m, [(X, convert(Y))], epochs=1, progress=False)
    real, y = model("normal", 1), torch.randn(4)
    assert torch.allclose(real.loss(X, convert(y)).total, real.loss(X, y).total)
    weight = torch.tensor([1.0, 2.0, 0.0, 1.0])
    loss = m.loss(X, Y, sample_weight=convert(weight)).total
    assert loss == m.loss(X, Y, sample_weight=weight).total and loss.dtype == torch.float32


@pytest.mark.parametrize("target", ["a", ["a"] * 4, [[0], [1, 2]], object()])
def test_targets_that_are_no_numbers(target: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"target is a {type(target).__name__} that holds no numbers: give a tensor"
    ):
        model().loss(X, target)
    with pytest.raises(TypeError, match="the target of a batch is a .* that holds no numbers"):
        bf.evaluate(model(), [(X, target)])


def test_a_loss_without_targets() -> None:
    with pytest.raises(TypeError, match=r"y=None must be the targets of the batch; model\(x\) is the output"):
        model().loss(X, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", [math.nan, math.inf, -1.0])
def test_sample_weights(weight: float) -> None:
    with pytest.raises(
        ValueError, match=f"sample_weight holds {weight:g}: weights must be 0 or larger, and finite"
    ):
        model().loss(X, Y, sample_weight=[1.0, 1.0, weight, 1.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sample_weight is a str that holds no numbers"):
        model().loss(X, Y, sample_weight="a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ("hello", r"x='hello' is text: give what the network takes, tensors of tokens; \(x,\) to one"),
        (b"hello", "x=b'hello' is text"),
        (X.numpy(), r"x is a numpy array: give a tensor, torch.from_numpy\(x\)"),
        (X.tolist(), r"x is a list of numbers: give a tensor, torch.tensor\(x\)"),
        ((1.0, 2.0, 3.0), "x is a tuple of numbers"),
    ],
)
def test_inputs(x: Any, message: str) -> None:
    m = model()
    for call in (m, m.predict, lambda x: m.loss(x, Y), lambda x: m.predict(x, mode="deterministic")):
        with pytest.raises(TypeError, match=message):
            call(x)


def test_a_loader_of_texts() -> None:
    with pytest.raises(TypeError, match="x='hello' is text"):
        model().predict(iter(["hello"]))


def test_a_network_that_takes_text_itself() -> None:
    class Lengths(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(1, 2)

        def forward(self, *texts: str) -> torch.Tensor:
            return self.linear(torch.tensor([[float(len(text))] for text in texts]))

    assert len(bf.bayesify(Lengths(), "mc_vi", num_data=1).predict(("a", "bcd"))) == 2


def test_generators() -> None:
    m, message = bf.bayesify(net(), "mc_vi", num_data=4), r"generator=3 must be a torch.Generator .* or None"
    q, p = bf.family("normal", like=X), bf.prior("normal")
    for call in (
        lambda: m(X, generator=3),
        lambda: m.loss(X, Y, generator=3),
        lambda: m.predict(X, generator=3),
        lambda: m.predict(X, mode="deterministic", generator=3),
        lambda: m.draw(3),  # type: ignore[arg-type]
        lambda: bf.evaluate(m, [(X, Y)], generator=3),  # type: ignore[arg-type]
        lambda: bf.kl(q, p, "repar", generator=3),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_numbers_of_functions() -> None:
    m = model()
    cases: list[tuple[Any, str]] = [
        (lambda: m.predict(X, 0), "num_draws=0 must be a whole number of at least 1"),
        (lambda: m.predict(X, math.nan), "num_draws=nan must be a whole number"),  # type: ignore[arg-type]
        (lambda: m.predict(X, batched="yes"), "batched='yes' must be true, false or None"),
        (
            lambda: m.predict(X, keep_samples=True).interval(math.nan),
            "mass=nan must be a number between 0 and 1",
        ),
        (lambda: m.optimizer(lr=0), "lr=0 must be a number above 0"),
        (lambda: m.optimizer(lr=math.nan), "lr=nan must be a number above 0"),
        (lambda: bf.evaluate(m, [(X, Y)], num_bins=0), "num_bins=0 must be a whole number of at least 1"),
        (lambda: bf.KLWarmup(m, 10, start=-1), "start=-1 must be a number of at least 0"),
        (lambda: bf.KLWarmup(m, 10, end=math.inf), "end=inf must be a number of at least 0 or None"),
        (
            lambda: bf.likelihood("categorical", class_weight=[1.0, -1.0]),
            r"class_weight=\[1.0, -1.0\] must be a finite",
        ),
        (lambda: bf.likelihood("categorical", class_weight="a"), "class_weight='a' must be a finite number"),
        (lambda: bf.prior("direction", flat=-1), "prior flat=-1 must lie in 0 to 1"),
        (lambda: bf.where.matching(3), "where.matching: 3 is not a regular expression"),  # type: ignore[arg-type]
        (lambda: bf.MonteCarloVI(family=["normal"]), r"family=\['normal'\] must be a text"),  # type: ignore[arg-type]
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


def test_models_and_networks(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    bf.save(model(), path)
    cases: list[tuple[Any, str]] = [
        (
            lambda: bf.load(path, None),
            "net=None must be a network of the architecture that .* was saved with",
        ),  # type: ignore[arg-type]
        (lambda: bf.load(path, model()), "net is a model: give the plain network to bf.load"),
        (lambda: bf.fit(net(), [(X, Y)], epochs=1), "model=Linear must be what bf.bayesify returned"),  # type: ignore[arg-type]
        (
            lambda: bf.evaluate(net(), [(X, Y)]),
            "model=Linear must be what bf.bayesify or model.freeze returned",
        ),
        (lambda: bf.evaluate(model(), None), "loader=None must give batches"),  # type: ignore[arg-type]
        (
            lambda: bf.bayesify(net(), "point", output=3),
            "output=3 must be a function of what the network returns",
        ),  # type: ignore[arg-type]
        (
            lambda: bf.kl(bf.family("normal", like=X), "normal"),
            r"p='normal' must be a prior, e.g. bf.prior\('normal'\)",
        ),  # type: ignore[arg-type]
        (lambda: bf.where.norm | "fc", r"where='fc' must be a choice, e.g. bf.where.matching\('fc'\)"),  # type: ignore[operator]
        (lambda: bf.where.norm & "fc", "where='fc' must be a choice"),  # type: ignore[operator]
    ]
    for call, message in cases:
        with pytest.raises(TypeError, match=message):
            call()


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_float32_inputs_after_training_in_another_precision(precision: str) -> None:
    m = bf.bayesify(net(), "mc_vi", num_data=4)
    bf.fit(m, [(X, Y)], epochs=1, precision=precision, accelerator="cpu", progress=False)
    for mode in ("ensemble", "deterministic"):
        assert m.predict(X, mode=mode).probs.shape == (4, 2)
    assert m.predict({"input": X}).probs.shape == (4, 2)


def test_a_file_with_weights_that_are_not_finite(tmp_path: Path) -> None:
    path, broken = tmp_path / "model.safetensors", model()
    with torch.no_grad():
        broken.net.weight[0, 0] = math.inf
    bf.save(broken, path)
    with pytest.warns(
        UserWarning, match="holds NaN or infinite numbers in net.weight: the training had diverged"
    ):
        loaded = bf.load(path, net())
    with pytest.raises(ValueError, match="the predictions of 4 of 4 examples .* are NaN"):
        loaded.predict(torch.zeros(4, 3))


def test_masks_in_a_file_are_no_reason_to_warn(tmp_path: Path) -> None:
    class Masked(nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 2)
            self.register_buffer("causal", torch.full((2,), -math.inf))

    path = tmp_path / "model.safetensors"
    bf.save(bf.bayesify(Masked(), "point", num_data=4), path)
    bf.load(path, Masked())


def test_a_tensor_stays_itself() -> None:
    assert as_tensor(X, "x") is X
