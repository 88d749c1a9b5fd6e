"""Other data are noticed when a run goes on, whatever loader gives them."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from quick_fit import quick
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from training_job import data, model

import bayesify as bf
from bayesify.data import Loader, Split
from bayesify.engine.checkpoint import find_checkpoints, read_checkpoint
from bayesify.engine.fingerprint import fingerprint_of
from bayesify.engine.randomness import random_state

SPLIT = data().train
assert isinstance(SPLIT.inputs, torch.Tensor)
OTHER = Split(SPLIT.inputs + 0.1, SPLIT.targets)


def tensors(split: Split) -> TensorDataset:
    assert isinstance(split.inputs, torch.Tensor)
    return TensorDataset(split.inputs, split.targets)


def batches(split: Split) -> list[Any]:
    return list(Loader(split, 16))


class Augmented(Dataset[Any]):
    """Random numbers from every global generator, or, `hidden`, from one of its own."""

    def __init__(self, split: Split, hidden: bool = False) -> None:
        self.inner = tensors(split)
        self.own = np.random.default_rng() if hidden else None

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        x, y = self.inner[index]
        noise = random.random() + np.random.rand() + float(torch.rand(()))
        return x + noise + (0 if self.own is None else self.own.random()), y


KINDS = {
    "own": lambda split: Loader(split, 16, shuffle=True),
    "tensors": lambda split: DataLoader(tensors(split), 16, shuffle=True),
    "workers": lambda split: DataLoader(Augmented(split), 16, num_workers=2),
    "augmented": lambda split: DataLoader(Augmented(split), 16),
    "list": batches,
    "tuple": lambda split: tuple(batches(split)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_values(kind: str) -> None:
    """The same data are the same, other ones are not, and no generator is touched."""
    before = random_state()
    one, again, other = (fingerprint_of(KINDS[kind](split)) for split in (SPLIT, SPLIT, OTHER))
    assert one == again != other
    assert one.keys() & {"examples", "batches"}
    now = random_state()
    assert now[1] == before[1] and all(torch.equal(now[0][k], before[0][k]) for k in before[0])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(tensors(SPLIT))


class Keyed(Dataset[Any]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: str) -> Any:
        return {"a": 0, "b": 1, "c": 2}[key]


@pytest.mark.parametrize(
    ("loader", "facts"),
    [
        (DataLoader(Augmented(SPLIT, hidden=True), 16), {"num_data": 200}),
        (DataLoader(Keyed(), sampler=["a", "b", "c"]), {"num_data": 3}),  # type: ignore[arg-type]
        (DataLoader(Stream(), 16), {}),
        (iter([]), {}),
    ],
)
def test_what_cannot_be_told(loader: Any, facts: dict[str, Any]) -> None:
    assert fingerprint_of(loader) == facts


@pytest.mark.parametrize("kind", ["own", "tensors", "list"])
def test_other_data_are_refused_and_taken_on_purpose(kind: str, tmp_path: Path) -> None:
    quick(folder=tmp_path, loader=KINDS[kind](SPLIT), epochs=1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    made = model("mc_vi")
    weights = {name: value.clone() for name, value in made.state_dict().items()}
    message = r"the data are others than those of the run in .*: (examples|batches): other values. Give it .*"
    with pytest.raises(
        ValueError, match=message + r"data_changed=True \(--data-changed\), or choose another"
    ):
        quick(folder=tmp_path, loader=KINDS[kind](OTHER), model=made)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert all(torch.equal(value, weights[name]) for name, value in made.state_dict().items())
    history = quick(folder=tmp_path, loader=KINDS[kind](OTHER), data_changed=True)
    assert any("goes on with other data: " in note for note in history.notes)
    assert len(quick(folder=tmp_path, loader=KINDS[kind](OTHER), epochs=3)) == 3  # now these are its data
    with pytest.raises(ValueError, match="the data are others"):
        quick(folder=tmp_path, loader=KINDS[kind](SPLIT), epochs=4)


def test_another_number_of_examples_begins_the_epoch_anew(tmp_path: Path) -> None:
    """The place in the epoch is one of the data that were there."""

    class Stop(Exception): ...

    class Stopping(Loader):
        def _fetch(self, indices: list[torch.Tensor]) -> Any:
            for i, x in enumerate(super()._fetch(indices)):
                if i == 10:
                    raise Stop
                yield x

    options: dict[str, Any] = {"folder": tmp_path, "checkpoint_every": 3, "epochs": 2}
    with pytest.raises(Stop):
        quick(loader=Stopping(SPLIT, 16), **options)
    few = SPLIT.take(torch.arange(96))
    with pytest.raises(ValueError, match=r"num_data: 200 → 96, examples: other values"):
        quick(loader=Loader(few, 16), **options)
    with pytest.warns(UserWarning, match="num_data=200, but the loader goes through 96"):
        history = quick(loader=Loader(few, 16), data_changed=True, **options)
    assert "with other data a run resumes at the start of its epoch" in history.notes
    assert history.column("step") == [9 + 6, 9 + 12]


def test_the_loader_may_be_another_kind(tmp_path: Path) -> None:
    """Then only what both know is compared."""
    quick(folder=tmp_path, loader=batches(SPLIT), epochs=1)
    assert len(quick(folder=tmp_path, loader=KINDS["own"](SPLIT))) == 2


def test_a_checkpoint_of_an_older_version_goes_on_with_a_note(tmp_path: Path) -> None:
    from bayesify.engine.checkpoint import write_checkpoint

    quick(folder=tmp_path, epochs=1)
    ((step, path),) = find_checkpoints(tmp_path / "checkpoints")
    state = {k: v for k, v in read_checkpoint(path).items() if k not in ("data", "settings")}
    write_checkpoint(path.parent, step, state, 2, True)
    history = quick(folder=tmp_path, loader=Loader(OTHER, 16))
    assert any("has no fingerprint of its data (an older bayesify wrote it)" in n for n in history.notes)
    assert "data" in read_checkpoint(find_checkpoints(path.parent)[0][1])


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (
            bf.MonteCarloVI(),
            bf.MonteCarloVI(prior=bf.prior("normal", std=0.5)),
            "method.prior.std: 1.0 → 0.5",
        ),
        (bf.MonteCarloVI(), bf.MonteCarloVI(prior="laplace"), "method.prior.prior: 'normal' → 'laplace'"),
        (bf.MonteCarloVI(), bf.MonteCarloVI(sampling="local"), "method.sampling: 'draw' → 'local'"),
        (
            bf.ThermostatMCMC(burn_in=0, every=1),
            bf.ThermostatMCMC(burn_in=0, every=1, integrator="strang"),
            "method.integrator: 'fused' → 'strang'",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::bayesify.SamplingWarning")
def test_other_settings_are_said(before: Any, now: Any, said: str, tmp_path: Path) -> None:
    def run(method: Any, epochs: int) -> bf.History:
        torch.manual_seed(0)
        made = bf.bayesify(torch.nn.Linear(6, 2), method, num_data=200)
        return bf.fit(
            made, Loader(SPLIT, 16), epochs=epochs, folder=tmp_path, lr=1e-3, progress=False, seed=0
        )

    run(before, 1)
    assert not any("settings are others" in note for note in run(before, 2).notes)
    with pytest.warns(UserWarning, match=f"settings are others than those of the run in .*{said}"):
        history = run(now, 3)
    assert any(said in note for note in history.notes)
