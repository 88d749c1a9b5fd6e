"""bf.fit on loaders without a length."""

import shutil
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from quick_fit import quick
from training_job import data, model

import bayesify as bf
from bayesify.data import Loader
from bayesify.engine.checkpoint import find_checkpoints
from bayesify.engine.position import agree_on_num_data


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


def test_a_chain_of_a_stream_whose_length_nobody_said() -> None:
    """Its first draw would come after half of 1000 steps an epoch."""

    def run(**options: Any) -> int:
        method = bf.ThermostatMCMC(**options.pop("method", {}))
        made = bf.bayesify(torch.nn.Linear(2, 2), method, num_data=64)
        examples = [(torch.randn(2), 0) for _ in range(64)]

        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self) -> Any:
                return iter(examples)

        bf.fit(made, torch.utils.data.DataLoader(Stream(), 16), epochs=2, progress=False, **options)
        return len(made.posterior.store)  # type: ignore[union-attr, arg-type]

    message = (
        "the times at which draws or iterates are kept count 1000 steps as an epoch, and perhaps none is; say"
    )
    with pytest.warns(bf.SamplingWarning, match=message):
        assert run() == 0
    with pytest.raises(bf.SamplingWarning, match=message):
        run(on_bad_sampling="raise")
    assert run(steps_per_epoch=4) == 4
    assert run(method={"burn_in": 4, "every": 2}) == 2


def test_steps_per_epoch_of_a_loader_with_a_length() -> None:
    assert quick(steps_per_epoch=13)[-1]["step"] == 26
    message = (
        "steps_per_epoch=5 is for loaders without a length; train_loader has 13 batches, which are 7 steps"
    )
    with pytest.raises(ValueError, match=message):
        quick(steps_per_epoch=5, accumulate=2)


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


@pytest.mark.parametrize(("num_data", "effect"), [(64, "10 times too strong"), (6400, "10 times too weak")])
def test_a_num_data_that_contradicts_the_loader_is_said(num_data: int, effect: str) -> None:
    """Of a posterior's width it is a factor of √10."""

    class Model:
        pass

    model: Any = Model()
    model.num_data = num_data
    with pytest.warns(UserWarning, match=f"num_data={num_data}, but the loader goes through 640 .* {effect}"):
        agree_on_num_data(model, 640)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for near in (None, 640, 600, 700):
            model.num_data = near
            agree_on_num_data(model, 640)
            assert model.num_data == (near or 640)


def test_fit_compares_num_data_with_the_loader() -> None:
    parts = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.randn(8, 1))
    loader = torch.utils.data.DataLoader(parts, 4)
    for batches in (loader, [*loader]):
        model = bf.bayesify(torch.nn.Linear(3, 1), bf.ThermostatMCMC(), "normal", num_data=160)
        with pytest.warns(UserWarning, match="num_data=160, but the loader"):
            bf.sample_chains(model, batches, num_chains=2, epochs=2, lr=1e-3)
    model = bf.bayesify(torch.nn.Linear(3, 1), "mc_vi", "normal", num_data=160)
    with pytest.warns(UserWarning, match="num_data=160, but the loader goes through 8"):
        bf.fit(model, loader, epochs=1, accelerator="cpu")


@pytest.mark.parametrize("schedule", ["onecycle", "cosine", "linear"])
@pytest.mark.parametrize("plain_first", [None, 0.2])
def test_a_run_goes_on_with_another_batch_size(
    schedule: str, plain_first: float | None, tmp_path: Path
) -> None:
    """The schedule ends where the run does, and a second stop changes nothing. It went on at a rate of 0."""
    options: dict[str, Any] = {
        "schedule": schedule,
        "lr": 0.01,
        "recipe": "plain",
        "plain_first": plain_first,
    }
    quick(folder=tmp_path / "run", epochs=5, **options, keep_last=9)
    for _, path in find_checkpoints(tmp_path / "run" / "checkpoints")[:2]:
        path.unlink()
    fewer: dict[str, Any] = {
        "loader": Loader(data().train, 50, seed=3),
        "keep_last": 9,
        "epochs": 5,
        **options,
    }
    with pytest.warns(UserWarning, match="an epoch has 4 steps and had 13 in the stored run"):
        history = quick(folder=tmp_path / "run", **fewer)
    assert history.column("step") == [13, 26, 39, 43, 47]
    rates = history.column("lr")
    assert rates[2] > rates[3] > 10 * rates[4] >= 0
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    (_, last), *_ = find_checkpoints(tmp_path / "again" / "checkpoints")
    last.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(folder=tmp_path / "again", **fewer)
    assert (tmp_path / "again/model.safetensors").read_bytes() == (
        tmp_path / "run/model.safetensors"
    ).read_bytes()


def test_a_run_that_stopped_inside_of_an_epoch_begins_it_again_with_other_batches(tmp_path: Path) -> None:
    quick(folder=tmp_path, epochs=1, checkpoint_every=5, keep_last=9)
    for _, path in find_checkpoints(tmp_path / "checkpoints")[:1]:
        path.unlink()
    with pytest.warns(UserWarning, match="an epoch has 4 steps and had 13"):
        history = quick(folder=tmp_path, epochs=1, loader=Loader(data().train, 50))
    assert "with other batches a run resumes at the start of its epoch" in history.notes
    assert history.column("step") == [14]
