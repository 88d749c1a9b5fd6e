"""Runs that meet trouble: each is a clear error, and what was there before is still there."""

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from training_job import data, loader, model, train

import bayesify as bf
from bayesify.checks import NonFiniteError
from bayesify.data import DataSet, Loader, Split
from bayesify.engine.checkpoint import find_checkpoints

QUIET: dict[str, Any] = {"progress": False, "seed": 0}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def a_read_only_folder(folder: Path) -> Path:
    folder.chmod(0o555)
    if not os.access(folder, os.W_OK):
        return folder
    if not Path("/sys/kernel").is_dir():  # root may write everywhere but there
        pytest.skip("no folder is read-only for this user")
    return Path("/sys/kernel")


def test_a_read_only_folder(tmp_path: Path) -> None:
    folder = a_read_only_folder(tmp_path)
    made = model("mc_vi")
    before = {name: value.clone() for name, value in made.state_dict().items()}
    with pytest.raises(
        OSError, match=f"cannot write to folder='{folder}/run'.*(denied|not permitted|Read-only)"
    ):
        bf.fit(made, loader("own"), epochs=1, folder=folder / "run", **QUIET)
    assert all(torch.equal(value, before[name]) for name, value in made.state_dict().items())


def test_a_folder_that_became_read_only(tmp_path: Path) -> None:
    train(str(tmp_path), "mc_vi", "own", epochs=1)
    before = files(tmp_path)
    (tmp_path / "checkpoints").chmod(0o555)
    try:
        if os.access(tmp_path / "checkpoints", os.W_OK):
            pytest.skip("this user (root) may write everywhere")
        with pytest.raises(OSError, match="denied"):
            train(str(tmp_path), "mc_vi", "own", epochs=2)
    finally:
        (tmp_path / "checkpoints").chmod(0o755)
    kept = files(tmp_path)
    assert all(kept[name] == content for name, content in before.items() if "step-" in name)
    assert len(train(str(tmp_path), "mc_vi", "own", epochs=2)) == 2


def test_a_second_process_in_the_folder(tmp_path: Path) -> None:
    """The first goes on undisturbed; when it was killed the folder is free at once."""
    job = Path(__file__).with_name("training_job.py")
    process = subprocess.Popen([sys.executable, str(job), str(tmp_path), "mc_vi", "own", "0.05"])
    try:
        while not find_checkpoints(tmp_path / "checkpoints") and process.poll() is None:
            time.sleep(0.02)
        with pytest.raises(
            RuntimeError, match="another run is using .*: wait for it, or choose another folder"
        ):
            train(str(tmp_path), "mc_vi", "own")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert len(train(str(tmp_path), "mc_vi", "own")) == 6


def pictures(bad_at: int | None = None) -> Split:
    x = torch.rand(64, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = (x.mean((1, 2, 3)) > 0.5).long()
    if bad_at is not None:
        x[bad_at, 0, 1, 2] = float("nan")
    return Split(x, y)


@pytest.mark.parametrize("method", [bf.Point(), bf.MonteCarloVI()])
def test_nan_pixels(method: Any, tmp_path: Path) -> None:
    """The step is not taken, the checkpoints stay, and the run goes on with clean data."""

    def run(split: Split, epochs: int, **options: Any) -> bf.History:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
        made = bf.bayesify(net, method, num_data=64)
        return bf.fit(
            made, Loader(split, 16, shuffle=True), epochs=epochs, folder=tmp_path, **QUIET, **options
        )

    run(pictures(), 1)
    before = files(tmp_path / "checkpoints")
    with pytest.raises(NonFiniteError, match=r"the batch holds NaN or infinite values \(input 0, shape"):
        run(pictures(bad_at=20), 2, data_changed=True)
    assert files(tmp_path / "checkpoints") == before
    assert len(run(pictures(), 2)) == 2


def test_a_loss_that_overflows_is_not_bad_input() -> None:
    """The model names the parameter; fit makes it an error of the run and keeps the words."""
    made = model("mc_vi")
    with torch.no_grad():
        made.get_parameter("net.0.weight")[0, 0] = float("inf")
    with pytest.raises(
        NonFiniteError, match="parameter 'net.0.weight' holds NaN or infinite values"
    ) as caught:
        bf.fit(made, loader("own"), epochs=1, **QUIET)
    assert isinstance(caught.value.__cause__, ValueError)


def test_other_errors_of_the_model_stay_what_they_are() -> None:
    split = data().train
    wrong = Loader(Split(split.inputs, split.targets + 7), 16)
    with pytest.raises(ValueError, match="target holds classes 7 to 8"):
        bf.fit(model("mc_vi"), wrong, epochs=1, **QUIET)


def test_a_data_set_of_one_class() -> None:
    split = data().train
    one = Split(split.inputs, torch.zeros_like(split.targets))
    with pytest.raises(ValueError, match=r"'mine', train targets: every label is 0; .* needs two classes"):
        DataSet.classification("mine", one, one, ("no", "yes"))


def one_cycle_rate(step: int, num_steps: int, lr: float) -> float:
    """Smith and Topin's cycle with cosines: from lr/25 to lr over the first 30 % of T − 1 steps, then to lr/25e4."""
    top = 0.3 * (num_steps + 1) - 1
    low, share = (lr / 25, step / top) if step <= top else (lr / 25e4, (num_steps - step) / (num_steps - top))
    return low + (lr - low) * (1 - math.cos(math.pi * share)) / 2


def test_a_one_cycle_schedule_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """13 steps an epoch: after two of them the cycle goes on where one of three epochs is."""
    options: dict[str, Any] = {
        "optimizer": "sgd",
        "momentum": 0.9,
        "lr": 0.01,
        "schedule": "onecycle",
        "recipe": None,
        "folder": tmp_path,
        "seed": 0,
    }
    bf.fit(model("mc_vi"), loader("own"), epochs=2, **options)
    for fewer in (1, 2):
        assert len(bf.fit(model("mc_vi"), loader("own"), epochs=fewer, **options)) == 2
    assert "jumps" not in capsys.readouterr().err
    history = bf.fit(model("mc_vi"), loader("own"), epochs=3, **options)
    wanted = [one_cycle_rate(step, num, 0.01) for step, num in ((13, 26), (26, 26), (39, 39))]
    assert history.column("lr") == pytest.approx(wanted, rel=1e-6)
    goes_on = one_cycle_rate(26, 39, 0.01)
    jump = (
        f"the schedule was laid out for 26 steps and is now for 39: the learning rate jumps from {wanted[1]:.3g} to "
        f"{goes_on:.3g}"
    )
    assert history.notes.count(jump) == 1


def halving(optimizer: torch.optim.Optimizer, num_steps: int) -> Any:
    """A schedule of the user's own that does not depend on the length."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.5 ** (t / 13))


@pytest.mark.parametrize("schedule", ["cosine", "linear", halving])
def test_the_other_schedules_can_grow_and_a_jump_is_said_once(
    schedule: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"schedule": schedule, "recipe": None, "folder": tmp_path, "seed": 0}
    jump = (
        "the schedule was laid out for 13 steps and is now for 26: the learning rate jumps from 0 to 0.0005"
    )
    bf.fit(model("mc_vi"), loader("own"), epochs=1, **options)
    again = bf.fit(model("mc_vi"), loader("own"), epochs=1, **options)
    assert "jumps" not in " ".join(again.notes) + capsys.readouterr().err
    history = bf.fit(model("mc_vi"), loader("own"), epochs=2, **options)
    shown = capsys.readouterr().err.splitlines()
    if schedule is halving:
        assert history.column("lr") == pytest.approx([5e-4, 2.5e-4])
        assert jump not in shown
    else:
        assert history.column("lr") == pytest.approx([0.0, 0.0])
        assert history.notes.count(jump) == shown.count(jump) == 1


def test_the_rate_of_a_resumed_epoch_counts_what_ran_since(tmp_path: Path) -> None:
    """Twelve batches of 16 and one of 8, stopped after step 9: 56 of the 200 examples are left."""

    class Stop(Exception): ...

    class Stopping:
        def __init__(self) -> None:
            self.inner = loader("own")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def __len__(self) -> int:
            return len(self.inner)

        def __iter__(self) -> Any:
            for i, batch in enumerate(self.inner):
                if i == 10:
                    raise Stop
                yield batch

    options: dict[str, Any] = {"epochs": 2, "folder": tmp_path, "checkpoint_every": 3, **QUIET}
    with pytest.raises(Stop):
        bf.fit(model("mc_vi"), Stopping(), **options)
    history = bf.fit(model("mc_vi"), loader("own"), **options)
    assert "resumed at epoch 1, step 9" in history.notes
    ran = [row["examples_per_second"] * row["seconds"] for row in history]
    assert ran == pytest.approx([56, 200])


def test_tensorboard_files(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    bf.fit(
        model("mc_vi"),
        loader("own"),
        Loader(data().test, 40),
        epochs=2,
        folder=tmp_path,
        tensorboard=True,
        **QUIET,
    )
    written = list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))
    assert len(written) == 1
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert {"loss", "nll", "kl", "lr", "val_accuracy", "val_nll"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("loss")] == [13, 26]
