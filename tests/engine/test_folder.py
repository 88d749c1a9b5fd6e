"""bf.fit in a folder: refused folders, failures that lose nothing, loaders that resume."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from quick_fit import quick
from training_job import data, loader, model, train

import bayesify as bf
from bayesify import atomic as files
from bayesify.checks import NonFiniteError
from bayesify.engine.folder import RunFolder


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("whose", ["loader", "sampler"])
@pytest.mark.parametrize("stop_at", [20, 26])  # inside of an epoch, and at the end of one
def test_a_loader_with_a_generator_of_its_own_resumes_exactly(
    tmp_path: Path, stop_at: int, whose: str
) -> None:
    def run(folder: Path, stop_at: int | None) -> bf.History:
        split = data().train
        dataset = torch.utils.data.TensorDataset(split.inputs, split.targets)
        own = torch.Generator().manual_seed(5)
        drawn = torch.utils.data.WeightedRandomSampler(torch.ones(len(split)), len(split), generator=own)
        batches = (
            torch.utils.data.DataLoader(dataset, 16, shuffle=True, generator=own)
            if whose == "loader"
            else torch.utils.data.DataLoader(dataset, 16, sampler=drawn)
        )
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
        run(tmp_path / "parts", stop_at)
    resumed, whole = run(tmp_path / "parts", None), run(tmp_path / "whole", None)
    assert resumed.column("loss") == whole.column("loss")


@pytest.mark.parametrize("name", ["checkpoints", "draws", ".lock"])
def test_links_in_a_run_folder_are_refused(tmp_path: Path, name: str) -> None:
    """A folder that was mailed could have files elsewhere overwritten and deleted."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(OSError, match=rf"{name} is a link.*elsewhere.*remove it"),
        RunFolder(tmp_path / "run", resume=True, owner=True),
    ):
        pass
