"""bf.fit: what its options do."""

from typing import Any

import pytest
import torch
from quick_fit import quick
from torch import nn
from training_job import data, loader, model

import bayesify as bf
from bayesify.data import Loader
from bayesify.engine.setup import make_fabric


def test_training_learns_and_the_history_tells() -> None:
    history = quick(epochs=25, lr=0.02, kl_warmup=25)
    assert history[-1]["nll"] < history[0]["nll"]
    assert history[-1]["val_accuracy"] > 0.8
    assert history.column("epoch") == list(range(1, 26))
    assert history.best("val_nll")["val_nll"] == min(history.column("val_nll"))
    assert history.column("kl_weight")[-1] == pytest.approx(1.0)
    assert any("compile: off" in note for note in history.notes)
    with pytest.raises(ValueError, match="no row of this history has 'val_magic'"):
        history.best("val_magic")


def test_num_data_comes_from_the_loader() -> None:
    for kind in ("own", "torch"):
        made = model("mc_vi")
        made.num_data = None
        quick(model=made, loader=loader(kind), epochs=1)
        assert made.num_data == 200


@pytest.mark.parametrize("precision", ["bf16-true", "64-true"])
def test_validation_and_loaders_follow_the_precision(precision: str) -> None:
    made = model("mc_vi")
    history = quick(model=made, epochs=1, precision=precision)
    assert history[-1]["val_nll"] < 1.5
    assert made.predict(Loader(data().test, 40), num_draws=2).mean.dtype != torch.bfloat16
    assert bf.evaluate(made, Loader(data().test, 40), num_draws=2)["nll"] < 1.5


def test_accumulation_equals_a_larger_batch() -> None:
    def weights(batch_size: int, accumulate: int) -> list[torch.Tensor]:
        torch.manual_seed(0)
        made = bf.bayesify(nn.Linear(6, 2), bf.Point())
        split = data().train
        bf.fit(
            made,
            Loader(split, batch_size, shuffle=True),
            epochs=2,
            accumulate=accumulate,
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
            progress=False,
        )
        return [p.detach() for p in made.parameters()]

    for a, b in zip(weights(20, 1), weights(10, 2), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_early_stopping(capsys: pytest.CaptureFixture[str]) -> None:
    history = quick(epochs=50, lr=0.5, patience=2, progress=True)
    assert len(history) < 50
    assert "stopped early" in history.notes[-1]
    assert history.notes[-1] == capsys.readouterr().err.splitlines()[-1]


def test_the_moving_average_is_left_in_the_model() -> None:
    plain, averaged = model("mc_vi"), model("mc_vi")
    quick(model=plain)
    quick(model=averaged, ema=0.99)
    assert not torch.equal(plain.net[0].weight, averaged.net[0].weight)


@pytest.mark.parametrize("schedule", ["cosine", "linear", "onecycle"])
def test_schedules(schedule: str) -> None:
    assert quick(schedule=schedule)[-1]["lr"] < 1e-3


def test_a_warm_up_longer_than_the_run_leaves_the_full_weight() -> None:
    made = model("mc_vi")
    quick(model=made, kl_warmup=8)
    assert made.kl_weight == 1.0


def test_mixed_precision_leaves_inputs_and_targets_as_they_are() -> None:
    fabric = make_fabric("cpu", 1, 1, "auto", "bf16-mixed")
    given = {"x": torch.tensor([1.001]), "y": torch.tensor([3])}
    passed = fabric.strategy.precision.convert_input(given)
    assert all(passed[key] is given[key] for key in given)
    with fabric.autocast():
        assert (given["x"][None] @ given["x"][:, None]).dtype == torch.bfloat16


def test_mixed_precision_and_clipping() -> None:
    assert quick(precision="bf16-mixed", clip_norm=0.5)[-1]["loss"] > 0


def test_progress_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    quick(progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("compile: off")
    assert lines[1].startswith("epoch 1/2  loss ")
    assert "val_accuracy" in lines[2]


def broken_backend(graph: Any, inputs: Any) -> Any:
    raise RuntimeError("no kernel for this\nand more")


def test_a_compiler_that_fails_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run as without it, and a note; where it was asked for, its own error."""
    monkeypatch.setattr(
        "bayesify.engine.loop.compile_decision", lambda compile, *rest: (bool(compile), "compile: on")
    )
    monkeypatch.setattr(
        "bayesify.engine.loop.compile_model", lambda m, fabric: torch.compile(m, backend=broken_backend)
    )
    x, y = torch.randn(32, 6, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 2
    found = {}
    for compile in ("auto", False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        made = bf.bayesify(net, bf.MonteCarloVI(), num_data=96)
        history = bf.fit(made, [(x, y)] * 3, epochs=2, compile=compile, progress=False, seed=0)
        found[compile] = {k: v.clone() for k, v in made.state_dict().items()}
        assert any("torch's compiler failed" in note for note in history.notes) == (compile == "auto")
    assert all(torch.equal(v, found[False][k]) for k, v in found["auto"].items())
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no kernel for this"):
        bf.fit(made, [(x, y)] * 3, epochs=1, compile=True, progress=False)


def test_a_compiled_run_checks_its_first_batch_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bayesify.engine.loop.compile_model", lambda m, fabric: torch.compile(m, backend="aot_eager")
    )
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    made = bf.bayesify(net, bf.MonteCarloVI(), num_data=96)
    x, y = torch.randn(32, 6), torch.randint(2, (32,))
    bf.fit(made, [(x, y)] * 3, epochs=1, compile=True, progress=False, seed=0)
    assert net[1].num_batches_tracked == 3
    with pytest.raises(ValueError, match=r"classes 2 to 2, but the network has 2 outputs"):
        bf.fit(made, [(x, torch.full((32,), 2))], epochs=1, compile=True, progress=False)
