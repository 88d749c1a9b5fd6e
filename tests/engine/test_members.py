"""fit_members: whoever trains the members, alone or in groups of processes, they come out the same."""

import csv
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import members_job
import pytest
import torch
from members_job import SEED, loaders, make_model, train
from test_checkpoint import tensors
from test_fit_distributed import torchrun
from training_job import data

import bayesify as bf
from bayesify.engine import fit_members, members
from bayesify.engine.folder import RunFolder
from bayesify.engine.position import SEEDS

X = data().test.inputs


def same_weights(a: Path, b: Path, name: str = "model.safetensors") -> bool:
    mine, other = tensors(a / name), tensors(b / name)
    return mine.keys() == other.keys() and all(torch.equal(mine[key], other[key]) for key in mine)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four members by one process, one after the other."""
    folder = tmp_path_factory.mktemp("alone")
    assert train(folder, 4) is not None
    return folder


def test_one_process_trains_them_one_after_the_other(alone: Path, tmp_path: Path) -> None:
    """Member i is what bf.fit gives with seed + i, on its order of the data."""
    for i in (0, 3):
        torch.manual_seed(SEED + i)
        options: dict[str, Any] = {"seed": SEED + i, "recipe": None, "progress": False}
        train, val = loaders()
        bf.fit(make_model(), train.for_member(i), val, epochs=2, folder=tmp_path / str(i), **options)
        for name in ("model.safetensors", "best.safetensors"):
            assert same_weights(alone / f"member-{i}", tmp_path / str(i), name)


def test_the_folder_holds_the_ensemble(alone: Path) -> None:
    names = {path.name for path in alone.iterdir() if not path.name.startswith(".")}
    files = {"model.safetensors", "best.safetensors", "metrics.csv"}
    assert names == files | {f"member-{i}" for i in range(4)}
    with (alone / "metrics.csv").open() as file:
        rows = [(row["member"], row["epoch"]) for row in csv.DictReader(file)]
    assert rows == [(str(member), str(epoch)) for member in range(4) for epoch in (1, 2)]
    ensemble = bf.load(alone / "model.safetensors", make_model().mean_net())
    assert ensemble.method.options()["num_members"] == 4
    members = [
        bf.load(alone / f"member-{i}" / "model.safetensors", make_model().mean_net()) for i in range(4)
    ]
    a, b = (torch.Generator().manual_seed(0) for _ in range(2))
    own = [member.predict(X, 5, keep_samples=True, generator=a).samples for member in members]
    assert torch.equal(ensemble.predict(X, 20, keep_samples=True, generator=b).samples, torch.cat(own))


def test_groups_of_processes_train_the_same_members(alone: Path, tmp_path: Path) -> None:
    job = Path(members_job.__file__)
    two, four = tmp_path / "two", tmp_path / "four"
    torchrun("two_groups_of_one", two, 2, job)
    assert all(same_weights(alone / f"member-{i}", two / "members" / f"member-{i}") for i in range(3))
    assert not (two / "members" / "member-3").exists()

    torchrun("all_cuts_of_four", four, 4, job)
    assert all(same_weights(alone / f"member-{i}", four / "four" / f"member-{i}") for i in range(4))
    assert same_weights(alone, four / "four")
    assert same_weights(alone, four / "four", "best.safetensors")

    # a group of two does what two processes of their own do
    assert same_weights(four / "ddp" / "member-0", two / "by-both")
    assert not same_weights(four / "ddp" / "member-0", four / "ddp" / "member-1")
    for strategy in ("ddp", "fsdp"):
        ensemble = bf.load(four / strategy / "model.safetensors", make_model().mean_net())
        assert ensemble.method.options()["num_members"] == 2
        assert ensemble.predict(X).probs.isfinite().all()


def test_a_stopped_run_goes_on(alone: Path, tmp_path: Path) -> None:
    made = 0

    def interrupted() -> bf.BayesianModule:
        nonlocal made
        made += 1
        if made == 3:
            raise KeyboardInterrupt
        return make_model()

    options: dict[str, Any] = {"num_members": 4, "seed": SEED, "epochs": 2, "recipe": None, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        fit_members(interrupted, *loaders(), folder=tmp_path, **options)
    assert not (tmp_path / "model.safetensors").exists()
    finished = (tmp_path / "member-0" / "model.safetensors").stat().st_mtime_ns
    assert fit_members(make_model, *loaders(), folder=tmp_path, **options) is not None
    assert same_weights(alone, tmp_path)
    assert (tmp_path / "member-0" / "model.safetensors").stat().st_mtime_ns == finished


def test_more_epochs_and_more_members(alone: Path, tmp_path: Path) -> None:
    """A member of a shorter run does not count as finished."""
    train(tmp_path, 3, epochs=1)
    train(tmp_path, 4)
    assert same_weights(alone, tmp_path)


def test_a_data_loader_with_a_generator_gives_every_member_its_order(tmp_path: Path) -> None:
    split = data().train
    dataset = torch.utils.data.TensorDataset(split.inputs, split.targets)

    def run(folder: Path, only: int | None = None) -> None:
        own = torch.Generator().manual_seed(3)
        loader = torch.utils.data.DataLoader(dataset, 50, shuffle=True, generator=own)
        options: dict[str, Any] = {"epochs": 1, "progress": False, "folder": folder}
        if only is None:
            fit_members(make_model, loader, num_members=2, seed=SEED, **options)
        else:
            own.manual_seed(3 + only * SEEDS)
            torch.manual_seed(SEED + only)
            bf.fit(make_model(), loader, seed=SEED + only, **options)

    run(tmp_path / "members")
    run(tmp_path / "one", only=1)
    assert same_weights(tmp_path / "members" / "member-1", tmp_path / "one")
    own, other = (torch.Generator().manual_seed(3 + i * SEEDS) for i in range(2))
    assert not torch.equal(torch.randperm(200, generator=own), torch.randperm(200, generator=other))


def test_waiting_ends_when_nothing_changes(alone: Path, tmp_path: Path) -> None:
    shutil.copytree(alone / "member-0", tmp_path / "member-0")
    waited_for = [members._Member(tmp_path / f"member-{i}", SEED + i, 2) for i in range(3)]
    with pytest.raises(TimeoutError, match=r"member-1, member-2 of .* did not finish.*for 0.3 s.*again"):
        members._wait_for(waited_for, wait=0.3, shown=False)


def test_waiting_goes_on_while_somebody_trains(
    alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    member = members._Member(tmp_path / "member-0", SEED, 2)

    def somebody() -> None:
        member.folder.mkdir()
        for step in range(6):
            time.sleep(0.3)
            (member.folder / f"step-{step}").touch()
        shutil.copytree(alone / "member-0", member.folder, dirs_exist_ok=True)

    thread = threading.Thread(target=somebody)
    thread.start()
    members._wait_for([member], wait=1.2, shown=True)
    thread.join()
    assert capsys.readouterr().err == "waiting for member-0\n"


def test_another_seed_in_the_same_folder(alone: Path, tmp_path: Path) -> None:
    shutil.copytree(alone / "member-0", tmp_path / "member-0")
    with pytest.raises(ValueError, match=r"member-0 holds a run with seed 5, this member has 6"):
        train(tmp_path, 2, seed=SEED + 1)
    (tmp_path / "member-0" / "member.json").write_text("{")
    with pytest.raises(ValueError, match=r"member.json is damaged"):
        train(tmp_path, 2)


def test_a_used_folder(alone: Path, tmp_path: Path) -> None:
    with RunFolder(tmp_path, True, True), pytest.raises(RuntimeError, match="another run is using"):
        train(tmp_path, 2)
    with pytest.raises(FileExistsError, match=r"member-0 holds a run already"):
        train(alone, 4, resume=False)


def test_members_that_start_alike_are_noticed(tmp_path: Path) -> None:
    def same() -> bf.BayesianModule:
        torch.manual_seed(0)
        return bf.bayesify(torch.nn.Linear(6, 2), bf.Point())

    def still(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.0)

    options: dict[str, Any] = {"num_members": 2, "seed": 0, "epochs": 1, "optimizer": still}
    with pytest.warns(UserWarning, match="hold the same weights"):
        fit_members(same, *loaders(), folder=tmp_path, progress=False, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_members": 0}, "num_members=0 must be a whole number of at least 1"),
        ({"num_members": 2.0}, "num_members=2.0 must be"),
        ({"seed": -1}, "seed=-1 must be a whole number of at least 0"),
        ({"seed": None}, "seed=None must be"),
        ({"wait": 0}, "wait=0 must be a number above 0"),
        ({"devices": 2}, "devices=2 cannot be chosen here.*use num_groups"),
        ({"num_nodes": 2}, "num_nodes=2 cannot be chosen here"),
        ({"num_groups": 3}, "num_groups=3 is more than num_members=2"),
        ({"num_groups": 2}, "num_groups=2: 1 processes, .* cannot be cut"),
        ({"epochs": 0}, "epochs=0 must be"),
        (
            {"optimizer": torch.optim.SGD([torch.zeros(1)], lr=0.1)},
            "optimizer is an optimiser of one model: give a function",
        ),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        train(tmp_path, **{"num_members": 2, **options})
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_function_that_makes_no_model(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="make_model returned Linear: it must return what bf.bayesify gives"):
        fit_members(
            lambda: torch.nn.Linear(6, 2),  # type: ignore[arg-type, return-value]
            *loaders(),
            num_members=1,
            folder=tmp_path,
            seed=0,
            epochs=1,
        )
    assert not (tmp_path / "member-0").exists()


def test_the_note_of_a_member(alone: Path) -> None:
    note = json.loads((alone / "member-2" / "member.json").read_text())
    assert note == {"seed": SEED + 2, "finished_epochs": 2}


def test_an_ensemble_of_ensembles_is_refused() -> None:
    inner = bf.DeepEnsemble(bf.MonteCarloVI(), num_members=3)
    message = r"MonteCarloVI\(...\), 3\) is an ensemble itself: use one ensemble, .*MonteCarloVI\(...\), 6\)"
    with pytest.raises(ValueError, match=message):
        bf.DeepEnsemble(inner, num_members=2)
