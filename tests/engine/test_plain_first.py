"""Runs that begin with the plain network: what they are in each part, and that they go on from anywhere."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training_job import data, loader

import bayesify as bf
from bayesify.engine.options import FitOptions
from bayesify.engine.settling import plain_options, settled
from bayesify.engine.state import RunState

STEPS = 13  # of an epoch: 200 examples in batches of 16
LATER = ("seconds", "examples_per_second")  # columns that no two runs have alike


class Stops:
    """A loader whose batches end in an error, after so many of them."""

    def __init__(self, after: int) -> None:
        self.inner, self.left = loader("own"), after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.inner:
            if self.left == 0:
                raise InterruptedError
            self.left -= 1
            yield batch


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 30), nn.BatchNorm1d(30), nn.ReLU(), nn.Linear(30, 2))


def chain(**options: Any) -> bf.BayesianModule:
    """272 weights and 200 examples; six epochs are four of a plain network and two of a cold chain."""
    with pytest.warns(UserWarning, match="batch norm"):
        return bf.bayesify(net(), bf.ThermostatMCMC(**options), num_data=200)


def fit(model: bf.BayesianModule, batches: Any = None, **options: Any) -> bf.History:
    settings: dict[str, Any] = {"epochs": 6, "progress": False, "seed": 0, **options}
    return bf.fit(model, loader("own") if batches is None else batches, **settings)


def weights(model: bf.BayesianModule) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.net.named_parameters()}


def test_the_first_part_is_the_plain_network() -> None:
    """Its weights and losses are those of a point in a run as long as that part."""
    seen: dict[int, dict[str, Tensor]] = {}
    model = chain()
    history = fit(model, on_epoch=lambda model, epoch: seen.__setitem__(epoch, weights(model)))
    point = bf.bayesify(net(), bf.Point(), num_data=200)
    alone = fit(point, epochs=4)
    assert all(torch.equal(seen[4][name], p) for name, p in weights(point).items())
    assert history.column("loss")[:4] == alone.column("loss")
    assert history.column("kl_weight") == [0.0] * 4 + [1.0] * 2
    assert history.column("lr")[4:] == [1e-3] * 2
    assert (model.posterior.steps, model.posterior.num_draws) == (2 * STEPS, 20)
    assert f"step {4 * STEPS}: the plain network is trained, atmc goes on from it" in history.notes


def test_it_is_said_before(capsys: pytest.CaptureFixture[str]) -> None:
    history = fit(chain())
    line = next(note for note in history.notes if note.startswith("recipe plain"))
    assert line.endswith(
        ": adam, lr 0.00106, onecycle over 4 epochs as a plain network, then the method's own "
        "optimiser, lr 0.001, constant over 2 epochs"
    )
    assert "temperature 0.01: draws are of a cold posterior" in history.notes


@pytest.mark.parametrize(
    ("method", "options", "epochs"),
    [
        ({}, {}, 4),
        ({"temperature": 0.1}, {}, 4),
        ({"temperature": 1.0}, {}, 0),
        ({"temperature": 0.0}, {}, 0),
        ({}, {"plain_first": 0.0}, 0),
        ({}, {"plain_first": 0.99}, 5),
        ({}, {"recipe": None}, 0),
        ({}, {"lr": 1e-3}, 0),
        ({}, {"lr": 1e-3, "plain_first": 0.5}, 3),
        ({}, {"epochs": 1}, 0),
    ],
)
def test_how_many_epochs(method: dict[str, Any], options: dict[str, Any], epochs: int) -> None:
    model, batches = chain(**method), loader("own")
    found, _ = settled(FitOptions(**{"epochs": 6, **options}), model, batches, STEPS)
    plain = plain_options(found, model, batches)
    assert (0 if plain is None else plain.epochs) == epochs
    assert settled(found, model, batches, STEPS)[0] == found


@pytest.mark.parametrize(
    "stop", [5, 2 * STEPS, 4 * STEPS - 1, 4 * STEPS, 4 * STEPS + 5, 5 * STEPS, 6 * STEPS - 1]
)
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, stop: int) -> None:
    whole = chain()
    history = fit(whole, checkpoint_every=5)
    with pytest.raises(InterruptedError):
        fit(chain(), Stops(stop), checkpoint_every=5, folder=tmp_path)
    again = chain()
    torch.manual_seed(99)  # what is random comes from the checkpoint
    resumed = fit(again, checkpoint_every=5, folder=tmp_path, seed=None)
    assert all(
        torch.equal(a, b) for a, b in zip(weights(whole).values(), weights(again).values(), strict=True)
    )
    for (key, mine), (other, theirs) in zip(whole.posterior.each(), again.posterior.each(), strict=True):
        assert key == other and all(torch.equal(mine[name], theirs[name]) for name in mine)
    kept = [[{k: v for k, v in row.items() if k not in LATER} for row in rows] for rows in (history, resumed)]
    assert kept[0] == kept[1]


@pytest.mark.parametrize(("before", "plain"), [(2, 8), (4, 8), (5, 4), (6, 4)])
def test_a_run_grows(tmp_path: Path, before: int, plain: int) -> None:
    """From six epochs to twelve: a plain network that is being trained has its share of all, and the schedule of that;
    one that is trained stays as it is, and the rest is the chain's."""
    if before < 6:
        with pytest.raises(InterruptedError):
            fit(chain(), Stops(before * STEPS), folder=tmp_path)
    else:
        fit(chain(), folder=tmp_path)
    model = chain()
    history = fit(model, epochs=12, folder=tmp_path)
    assert history.column("kl_weight") == [0.0] * plain + [1.0] * (12 - plain)
    assert model.posterior.steps == (12 - plain) * STEPS
    last = max(key.step for key, _ in model.posterior.each())
    assert last == (12 - plain) * STEPS
    assert max(history.column("lr")[:plain]) > 3e-4


def test_a_run_without_a_plain_part_stays_without(tmp_path: Path) -> None:
    """As those of before this was there, whose checkpoints do not say so either."""
    with pytest.raises(InterruptedError):
        fit(chain(), Stops(3 * STEPS), folder=tmp_path, plain_first=0.0)
    model = chain()
    history = fit(model, folder=tmp_path)
    assert history.column("kl_weight") == [1.0] * 6 and model.posterior.steps == 6 * STEPS


def test_another_course_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InterruptedError):
        fit(chain(), Stops(2 * STEPS), folder=tmp_path)
    with pytest.raises(
        ValueError, match=r"is in its plain epochs, and this one has none: resume it with the same"
    ):
        fit(chain(), folder=tmp_path, plain_first=0.0)


def test_patience_and_the_best_epoch_are_of_the_chain(tmp_path: Path) -> None:
    split = data().test
    val = [(split.inputs, 1 - split.targets)]  # training makes it worse and worse
    history = bf.fit(
        chain(), loader("own"), val, epochs=12, patience=2, folder=tmp_path, seed=0, progress=False
    )
    assert 8 < len(history) <= 12
    assert bf.load(tmp_path / "best.safetensors", net()).posterior.steps > 0


def test_patience_waits_for_the_first_draw() -> None:
    """The burn-in of a chain that has no plain epochs is half of the run."""
    split = data().test
    plain = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    warm = bf.bayesify(plain, bf.ThermostatMCMC(temperature=1.0, warm_start=False), num_data=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.SamplingWarning)
        history = bf.fit(
            warm,
            loader("own"),
            [(split.inputs, 1 - split.targets)],
            epochs=12,
            patience=1,
            seed=0,
            progress=False,
        )
    assert len(history) > 6 and len(warm.posterior.store)


def test_what_the_sampler_refuses_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no")

    model = chain()
    monkeypatch.setattr(bf.ThermostatMCMC, "optimizer", refuse)
    monkeypatch.setattr(RunState, "begin_part", lambda *_, **__: pytest.fail("it began"))
    with pytest.raises(RuntimeError, match="no"):
        fit(model)
