"""bf.fit: what its options do, and what it refuses."""

import os
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training_job import data, loader, model, train

import bayesify as bf
from bayesify import files
from bayesify.data import Loader
from bayesify.engine.finite import NonFiniteError
from bayesify.engine.setup import make_fabric


def quick(**options: Any) -> bf.History:
    settings: dict[str, Any] = {"epochs": 2, "progress": False, "seed": 0, **options}
    made, given = settings.pop("model", None), settings.pop("loader", None)
    batches = loader("own") if given is None else given
    return bf.fit(model("mc_vi") if made is None else made, batches, Loader(data().test, 40), **settings)


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


def test_mixed_precision_leaves_inputs_and_targets_as_they_are() -> None:
    fabric = make_fabric("cpu", 1, 1, "auto", "bf16-mixed")
    given = {"x": torch.tensor([1.001]), "y": torch.tensor([3])}
    passed = fabric.strategy.precision.convert_input(given)
    assert all(passed[key] is given[key] for key in given)
    with fabric.autocast():
        assert (given["x"][None] @ given["x"][:, None]).dtype == torch.bfloat16


def test_mixed_precision_and_clipping() -> None:
    assert quick(precision="bf16-mixed", clip_norm=0.5)[-1]["loss"] > 0


def test_a_bad_gradient_stops_before_the_step_and_names_the_parameter(tmp_path: Path) -> None:
    made = model("mc_vi")
    train_loader = loader("own")
    quick(model=made, loader=train_loader, folder=tmp_path, epochs=1)
    good = {k: v.clone() for k, v in made.state_dict().items()}

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * float("nan")

    made.output = Broken.apply
    with pytest.raises(NonFiniteError, match=r"not finite in net.0.weight.*The optimiser step was not taken"):
        quick(model=made, loader=train_loader, folder=tmp_path, epochs=2)
    assert all(
        torch.equal(v, good[k])
        for k, v in made.state_dict().items()
        if "running" not in k and "num_b" not in k
    )
    made.output = None
    assert len(quick(model=made, loader=train_loader, folder=tmp_path, epochs=2)) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs=0 must be a whole number"),
        ({"accumulate": 0}, "accumulate=0"),
        ({"steps_per_epoch": 0}, "steps_per_epoch=0 must be at least 1"),
        ({"schedule": "cosin"}, "schedule='cosin' does not exist.*Did you mean 'cosine'"),
        ({"precision": "8-bit"}, "precision='8-bit' cannot be had here"),
        ({"accelerator": "warp"}, "accelerator='warp'"),
        ({"strategy": "magic"}, "strategy='magic'"),
        ({"ema": 1.5}, "ema=1.5 must lie between 0 and 1"),
        ({"kl_warmup": -1}, "kl_warmup=-1"),
        ({"tensorboard": True}, "tensorboard=True needs a folder"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**options)


def test_patience_needs_validation() -> None:
    with pytest.raises(ValueError, match="needs a val_loader"):
        bf.fit(model("mc_vi"), loader("own"), epochs=1, patience=2)


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    from bayesify.engine.folder import RunFolder

    with RunFolder(tmp_path, True, True), pytest.raises(RuntimeError, match="another run is using"):
        quick(folder=tmp_path)


def test_a_used_folder_without_resume(tmp_path: Path) -> None:
    quick(folder=tmp_path)
    with pytest.raises(FileExistsError, match="holds a run already"):
        quick(folder=tmp_path, resume=False)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot write to folder="):
        quick(folder=tmp_path / "file" / "run")


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(str(tmp_path), "mc_vi", "own", epochs=1)
    before = sorted(os.listdir(tmp_path / "checkpoints"))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "save_file", full)
        with pytest.raises(OSError, match="No space left"):
            train(str(tmp_path), "mc_vi", "own", epochs=2)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == before
    assert len(train(str(tmp_path), "mc_vi", "own", epochs=2)) == 2


def test_an_iterable_data_set_resumes_at_the_start_of_its_epoch(tmp_path: Path) -> None:
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            split = data().train
            return iter(zip(split.inputs[:64], split.targets[:64], strict=True))

    stream = torch.utils.data.DataLoader(Stream(), 16)
    made = model("mc_vi")

    class Stop(Exception): ...

    def stopping() -> Any:
        yield from list(stream)[:3]
        raise Stop

    class Interrupted(torch.utils.data.DataLoader):
        def __iter__(self) -> Any:
            return stopping()

    with pytest.raises(Stop):
        bf.fit(made, Interrupted(Stream(), 16), epochs=2, folder=tmp_path, checkpoint_every=1, progress=False)
    history = bf.fit(model("mc_vi"), stream, epochs=2, folder=tmp_path, progress=False)
    assert any("resumes at the start of its epoch" in note for note in history.notes)


class Endless(torch.utils.data.IterableDataset):
    """The training examples over and over: a loader of it has neither a length nor an end."""

    def __iter__(self) -> Any:
        split = data().train
        while True:
            yield from zip(split.inputs, split.targets, strict=True)


NO_LENGTH = "train_loader has no length: schedule and warm-up count 1000 steps as an epoch"


def test_steps_per_epoch_ends_the_epochs_of_a_stream_and_lays_out_its_schedule() -> None:
    stream = torch.utils.data.DataLoader(Endless(), 16)
    options: dict[str, Any] = {
        "loader": stream,
        "steps_per_epoch": 5,
        "kl_warmup": 2,
        "epochs": 4,
        "accumulate": 2,
    }
    history = quick(schedule="linear", lr=0.01, **options)
    assert history.column("step") == [5, 10, 15, 20]
    assert history.column("lr") == pytest.approx([0.0075, 0.005, 0.0025, 0])
    assert history.column("kl_weight") == pytest.approx([0.5, 1, 1, 1])
    assert NO_LENGTH not in " ".join(history.notes)


def test_a_stream_whose_length_nobody_said_is_noted_where_it_matters() -> None:
    class Short(Endless):
        def __iter__(self) -> Any:
            return islice(super().__iter__(), 64)

    def notes(**options: Any) -> list[str]:
        history = quick(loader=torch.utils.data.DataLoader(Short(), 16), **options)
        assert history.column("step") == [4, 8]
        return [note for note in history.notes if NO_LENGTH in note]

    assert len(notes(schedule="cosine")) == len(notes(kl_warmup=1)) == 1
    assert not notes()
    assert not notes(schedule="cosine", steps_per_epoch=4)
    history = quick(loader=torch.utils.data.DataLoader(Short(), 16), schedule="cosine", steps_per_epoch=9)
    ended = "train_loader ended after 4 batches: steps_per_epoch=9 is too large for it"
    assert sum(ended in note for note in history.notes) == 1


def test_steps_per_epoch_of_a_loader_with_a_length() -> None:
    assert quick(steps_per_epoch=13)[-1]["step"] == 26
    message = (
        "steps_per_epoch=5 is for loaders without a length; train_loader has 13 batches, which are 7 steps"
    )
    with pytest.raises(ValueError, match=message):
        quick(steps_per_epoch=5, accumulate=2)


def test_progress_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    quick(progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("compile: off")
    assert lines[1].startswith("epoch 1/2  loss ")
    assert "val_accuracy" in lines[2]


def test_a_loader_with_a_generator_of_its_own_resumes_exactly(tmp_path: Path) -> None:
    def run(folder: Path, stop_at: int | None) -> bf.History:
        split = data().train
        dataset = torch.utils.data.TensorDataset(split.inputs, split.targets)
        own = torch.Generator().manual_seed(5)
        batches = torch.utils.data.DataLoader(dataset, 16, shuffle=True, generator=own)
        made = model("mc_vi")
        if stop_at is not None:
            steps = 0

            def stopping(out: torch.Tensor) -> torch.Tensor:
                nonlocal steps
                steps += 1
                if steps > stop_at:
                    raise KeyboardInterrupt
                return out

            made.output = stopping
        return bf.fit(made, batches, epochs=3, folder=folder, checkpoint_every=1, seed=2, progress=False)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", stop_at=20)
    resumed, whole = run(tmp_path / "parts", None), run(tmp_path / "whole", None)
    assert resumed.column("loss") == whole.column("loss")


def test_an_empty_loader() -> None:
    with pytest.raises(ValueError, match="train_loader is empty"):
        bf.fit(model("mc_vi"), [], epochs=1)  # type: ignore[arg-type]


def test_half_precision_is_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="use 'bf16-mixed' instead"):
        quick(precision="16-mixed")


def test_a_warm_up_longer_than_the_run_leaves_the_full_weight() -> None:
    made = model("mc_vi")
    quick(model=made, kl_warmup=8)
    assert made.kl_weight == 1.0


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
