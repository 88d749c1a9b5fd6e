"""Checkpoints that are damaged in any way: the one before is used, good ones stay, nothing is overwritten."""

import json
import os
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from quick_fit import quick
from safetensors import safe_open
from safetensors.torch import save_file
from training_job import data, loader, model

import bayesify as bf
from bayesify.atomic import HEADER, read_header, read_tensors, write_tensors
from bayesify.data import Loader
from bayesify.engine.checkpoint import find_checkpoints


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("stored") / "run"
    quick(folder=folder)
    return folder


@pytest.fixture
def run(stored: Path, tmp_path: Path) -> Path:
    shutil.copytree(stored, tmp_path / "run")
    return tmp_path / "run"


def newest(run: Path) -> Path:
    return find_checkpoints(run / "checkpoints")[0][1]


def entry(state: Any, name: str) -> Any:
    """The pair [name, value] of the map that a state is written as."""
    return next(pair for pair in state["map"] if pair[0] == name)


def set_to(name: str, value: Any) -> Callable[[Any], Any]:
    def change(state: Any) -> Any:
        entry(state, name)[1] = value
        return state

    return change


def without(name: str) -> Callable[[Any], Any]:
    return lambda state: {"map": [pair for pair in state["map"] if pair[0] != name]}


STRUCTURES: dict[str, Callable[[Any], Any]] = {
    "no table": lambda state: 3,
    "a list": lambda state: [],
    "empty": lambda state: {},
    "of no kind": lambda state: {"map": 5},
    "pairs of one": lambda state: {"map": [["epoch"]]},
    "unknown tensor": set_to("model", {"tensor": "nowhere"}),
    "no epoch": without("epoch"),
    "no random": without("random"),
    "no schedule": without("schedule"),
    "epoch is a text": set_to("epoch", "three"),
    "step is missing": set_to("step", None),
    "history is a number": set_to("history", 5),
    "random is a number": set_to("random", 3),
    "random of numbers": set_to("random", {"list": [7]}),
    "random of empty tables": set_to("random", {"list": [{"tuple": [{"map": []}, {"map": []}]}]}),
    "sums of one": set_to("sums", {"list": [{"list": [0.0]}]}),
    "sums of numbers": set_to("sums", {"list": [4]}),
    "model is a list": set_to("model", {"list": []}),
    "optimizer without groups": set_to("optimizer", {"map": [["state", {"map": []}]]}),
    "optimizer of texts": set_to("optimizer", {"map": [["state", "x"], ["param_groups", "y"]]}),
    "schedule is a text": set_to("schedule", "cosine"),
    "best is a text": set_to("best", "good"),
    "best is none": set_to("best", float("nan")),
    "nobody's random": set_to("random", {"list": []}),
    "random of two": lambda state: set_to("random", {"list": 2 * entry(state, "random")[1]["list"]})(state),
    "a batch beyond the epoch": set_to("batch", 10**6),
    "a batch before it": set_to("batch", -1),
    "history of numbers": set_to("history", {"list": [5]}),
    "an epoch far ahead": set_to("epoch", 10**9),
    "an epoch before the first": set_to("epoch", -5),
    "a step before the first": set_to("step", -1),
    "another step": set_to("step", 25),
    "a count that is not whole": set_to("seen", 1e30),
}


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("name", STRUCTURES)
def test_a_structure_that_is_none_falls_back(name: str, sealed: bool, run: Path) -> None:
    """With checksums that are right, and as older versions wrote it, without one of the header."""
    path = newest(run)
    header = read_header(path)
    tensors = read_tensors(path, header)
    header["state"] = STRUCTURES[name](header["state"])
    if sealed:
        write_tensors(path, tensors, header)
    else:
        save_file(tensors, path, metadata={HEADER: json.dumps(header)})
    with pytest.warns(UserWarning, match=f"{path.name} is damaged.*: trying the checkpoint before it"):
        history = quick(folder=run, epochs=3)
    assert history.column("epoch") == [1, 2, 3]
    assert [note for note in history.notes if "resumed" in note] == ["resumed at epoch 2, step 13"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state.model.net.0.weight", float("nan")),
        (".exp_avg", float("inf")),
        (".exp_avg", None),
        (".step", -1.0),
        (".step", None),
        ("state.sums.0.0", None),
        (".exp_avg_sq", "single"),
    ],
)
def test_a_tensor_that_cannot_be_falls_back(name: str, value: float | str | None, run: Path) -> None:
    """A value everywhere in it; None: another shape, "single": one number."""
    path = newest(run)
    header = read_header(path)
    tensors = read_tensors(path, header)
    key = next(key for key in tensors if key.endswith(name))
    old = tensors[key]
    wrong = {None: lambda: old.expand(3, *old.shape), "single": lambda: old.flatten()[0]}
    tensors[key] = wrong.get(value, lambda: torch.full_like(old, value))()  # type: ignore[arg-type]
    write_tensors(path, tensors, header)
    with pytest.warns(UserWarning, match=f"{path.name} is damaged.*: trying the checkpoint before it"):
        history = quick(folder=run, epochs=3)
    assert [note for note in history.notes if "resumed" in note] == ["resumed at epoch 2, step 13"]


@pytest.mark.parametrize("wrong", [torch.zeros(()), torch.full((12, 6), torch.nan)])
def test_an_average_that_cannot_be_falls_back(wrong: torch.Tensor, tmp_path: Path) -> None:
    quick(folder=tmp_path / "run", ema=0.9)
    path = newest(tmp_path / "run")
    header = read_header(path)
    tensors = {**read_tensors(path, header), "state.ema.average.0": wrong}
    write_tensors(path, tensors, header)
    with pytest.warns(UserWarning, match=f"{path.name} is damaged.*: trying the checkpoint before it"):
        quick(folder=tmp_path / "run", epochs=3, ema=0.9)


def test_a_stream_is_not_recognised(tmp_path: Path) -> None:
    """Which is said where a run goes on."""

    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            split = data().train
            yield from zip(split.inputs, split.targets, strict=True)

    def train(epochs: int) -> bf.History:
        batches = torch.utils.data.DataLoader(Stream(), 50)
        options: dict[str, Any] = {"progress": False, "seed": 0, "folder": tmp_path}
        return bf.fit(model("mc_vi"), batches, epochs=epochs, **options)

    said = "the data are a stream, which has no fingerprint"
    assert not any(said in note for note in train(1).notes)
    assert sum(said in note for note in train(2).notes) == 1


def test_flipped_bits_of_the_header_are_noticed(run: Path) -> None:
    """Everywhere in it: names, numbers, dtypes, shapes. A digit that is another one is a number, too."""
    path = newest(run)
    sound = path.read_bytes()
    size = int.from_bytes(sound[:8], "little")
    rng = random.Random(0)
    for place in [8 + rng.randrange(size) for _ in range(60)]:
        damaged = bytearray(sound)
        damaged[place] ^= 1 << rng.randrange(7)
        path.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read_tensors(path, read_header(path))
            except ValueError as error:
                named = str(path) in str(error)
            else:  # the checksum's own name, or blanks
                before, after = sound[8 : 8 + size], bytes(damaged[8 : 8 + size])
                named = b"header_checksum" not in after or before.split() == after.split()
            assert named, place


def test_a_tensor_of_another_dtype(run: Path) -> None:
    """Its bytes are the same."""
    path = newest(run)
    header = read_header(path)
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    name = next(name for name, tensor in tensors.items() if tensor.dtype == torch.float32)
    tensors[name] = tensors[name].view(torch.int32)
    save_file(tensors, path, metadata={HEADER: json.dumps(header)})
    with pytest.raises(ValueError, match="the shape or dtype of a tensor has changed"):
        read_tensors(path, read_header(path))


@pytest.mark.parametrize("keep_last", [1, 2])
def test_a_damaged_one_does_not_count_among_those_to_keep(keep_last: int, run: Path) -> None:
    """It had the largest number, so that the good ones beside it were deleted as soon as they were written."""
    (_, first), *_ = found = find_checkpoints(run / "checkpoints")
    damaged = first.with_name("step-000009999.safetensors")
    damaged.write_bytes(first.read_bytes()[:-50])
    assert len(found) == 2
    with pytest.warns(UserWarning, match=f"{damaged.name} is damaged"):
        quick(folder=run, epochs=4, keep_last=keep_last)
    assert [step for step, _ in find_checkpoints(run / "checkpoints")] == [52, 39][:keep_last]
    assert damaged.with_name(f"{damaged.name}.damaged").exists()  # nothing is thrown away
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(quick(folder=run, epochs=4, keep_last=keep_last)) == 4


def test_what_is_no_file_does_not_count_either(run: Path) -> None:
    """Links to nowhere and to themselves, folders and pipes by the names of checkpoints."""
    name = "step-{:09d}.safetensors".format
    folder = run / "checkpoints"
    (folder / name(900)).symlink_to(name(900))
    (folder / name(800)).symlink_to("nowhere")
    (folder / name(700)).mkdir()
    os.mkfifo(folder / name(600))
    with pytest.warns(UserWarning, match=r"step-000000[6789]00.safetensors"):
        quick(folder=run, epochs=3)
    assert sum(path.is_file() for _, path in find_checkpoints(folder)) == 2


def test_an_older_one_that_is_damaged_does_not_count_either(run: Path) -> None:
    _, (_, older) = find_checkpoints(run / "checkpoints")
    older.write_bytes(older.read_bytes()[:-50])
    quick(folder=run, epochs=3, keep_last=3)
    assert [step for step, _ in find_checkpoints(run / "checkpoints")] == [39, 26]


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("how", ["damaged", "gone", "not resumed"])
def test_without_a_checkpoint_nothing_is_overwritten(how: str, run: Path) -> None:
    checkpoints = find_checkpoints(run / "checkpoints")
    for _, path in checkpoints:
        path.unlink() if how != "damaged" else path.write_bytes(b"x" * 100)
    before = listing(run)
    there = "model.safetensors, best.safetensors, metrics.csv" + ", 2 checkpoints" * (how == "damaged")
    message = rf"has no checkpoint that can be read.* overwrite what it has: {there}\. Put a sound .* another folder"
    if how == "not resumed":
        message = rf"holds a run already \({there}\): go on with resume=True"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(FileExistsError, match=message):
            quick(folder=run, epochs=3, resume=how != "not resumed")
    assert listing(run) == before
    for name in ("model.safetensors", "best.safetensors", "metrics.csv"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoints")
    assert len(quick(folder=run, epochs=1)) == 1  # an empty folder begins


@pytest.mark.filterwarnings("ignore::bayesify.SamplingWarning")
def test_the_draws_of_a_chain_are_not_lost(tmp_path: Path) -> None:
    """Neither to a chain that begins, nor to one that brings draws of its own."""

    def chain() -> bf.BayesianModule:
        net = torch.nn.Linear(6, 2)
        return bf.bayesify(net, bf.ThermostatMCMC(burn_in=0, every=2, num_kept=3), num_data=200)

    options: dict[str, Any] = {"lr": 1e-3, "progress": False, "seed": 0}
    first = chain()
    bf.fit(first, loader("own"), epochs=1, folder=tmp_path / "run", **options)
    shutil.rmtree(tmp_path / "run/checkpoints")
    before = listing(tmp_path / "run")
    for made in (chain(), first):
        with pytest.raises(FileExistsError, match=r"model.safetensors, metrics.csv, 6 draws"):
            bf.fit(made, loader("own"), epochs=1, folder=tmp_path / "run", **options)
        assert listing(tmp_path / "run") == before
    bf.fit(first, loader("own"), epochs=1, folder=tmp_path / "another", **options)


def test_partial_files_of_a_killed_run_are_cleared(run: Path) -> None:
    (run / "draws/member-1").mkdir(parents=True)
    names = (".a", "checkpoints/.b", "draws/.draw-0.x", "draws/member-1/.c")
    left = [run / f"{name}.partial" for name in names]
    for path in left:
        path.touch()
    quick(folder=run, epochs=2, model=model("mc_vi"))
    assert not any(path.exists() for path in left)


@pytest.mark.filterwarnings("ignore::bayesify.SamplingWarning")
@pytest.mark.parametrize("method", [bf.MonteCarloVI(), bf.ThermostatMCMC(burn_in=0, every=2, num_kept=3)])
def test_a_run_killed_before_its_first_checkpoint_begins_again(
    method: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left metrics, a best model and draws, which are its own to overwrite."""

    def run(folder: Path) -> bf.History:
        torch.manual_seed(0)
        made = bf.bayesify(torch.nn.Linear(6, 2), method, num_data=200)
        options: dict[str, Any] = {"lr": 1e-3, "progress": False, "seed": 0, "folder": folder}
        return bf.fit(made, loader("own"), Loader(data().test, 40), epochs=2, **options)

    class Kill(BaseException): ...

    def killed(*_: Any) -> None:
        raise Kill

    with monkeypatch.context() as patch:
        patch.setattr("bayesify.engine.state.write_checkpoint", killed)
        with pytest.raises(Kill):
            run(tmp_path / "killed")
    assert (tmp_path / "killed/metrics.csv").exists()
    assert run(tmp_path / "killed").column("loss") == run(tmp_path / "whole").column("loss")
    model_files = [tmp_path / name / "model.safetensors" for name in ("killed", "whole")]
    assert model_files[0].read_bytes() == model_files[1].read_bytes()
    assert not (tmp_path / "killed/.begun").exists()


@pytest.mark.filterwarnings("ignore::bayesify.SamplingWarning")
@pytest.mark.parametrize("instant", ["save_in_run", "evaluate"])
def test_a_run_killed_at_its_end_finds_the_same_in_its_draws(
    instant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last checkpoint, or after the one at its last batch: no batch is left to check the draws with."""

    def run(folder: Path) -> None:
        torch.manual_seed(0)
        made = bf.bayesify(torch.nn.Linear(6, 2), bf.ThermostatMCMC(), num_data=200)
        options: dict[str, Any] = {"progress": False, "seed": 0, "folder": folder, "checkpoint_every": 13}
        bf.fit(made, loader("torch"), Loader(data().test, 40), epochs=1, **options)
        assert made.posterior.findings

    class Kill(BaseException): ...

    def killed(model: Any, path: Any, *_: Any, **__: Any) -> None:
        if instant == "evaluate" or path.name == "model.safetensors":
            raise Kill

    run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(f"bayesify.engine.loop.{instant}", killed)
        with pytest.raises(Kill):
            run(tmp_path / "killed")
    run(tmp_path / "killed")
    model_files = [tmp_path / name / "model.safetensors" for name in ("killed", "whole")]
    assert model_files[0].read_bytes() == model_files[1].read_bytes()


def test_processes_that_read_different_checkpoints(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where one of them could not read the newest: they would train on from two places."""
    monkeypatch.setattr("bayesify.engine.state.RunState._of_all_ranks", lambda _, mine: [mine, 13])
    with pytest.raises(
        RuntimeError, match=r"read different checkpoints in .*, of the steps 13, 26: the warnings"
    ):
        quick(folder=run, epochs=3)
