"""What a run leaves to the recipe, and what of it is explicit."""

import copy
import math
from typing import Any

import pytest
import torch
from quick_fit import quick
from torch import nn
from training_job import loader, model

import bayesify as bf
from bayesify.data import Loader
from bayesify.data.dataset import Split
from bayesify.engine.options import FitOptions
from bayesify.engine.settling import settled


def convolutional() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)),
    )


def pictures(batch: int = 32) -> Loader:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(96, 1, 6, 6, generator=generator), torch.arange(96) % 2
    return Loader(Split(x, y), batch, shuffle=True, seed=0)


def settle(made: bf.BayesianModule, batches: Any, **options: Any) -> tuple[FitOptions, str | None]:
    return settled(FitOptions(**options), made, batches, len(batches))


def test_a_convolutional_network() -> None:
    """Batches of 32 have an eighth of the rate of 256."""
    made = bf.bayesify(convolutional(), bf.Point())
    options, said = settle(made, pictures(), epochs=20)
    assert (options.recipe, options.optimizer, options.schedule) == ("convolutional", "sgd", "onecycle")
    assert (options.lr, options.momentum, options.weight_decay) == (0.4 / 8, 0.9, 5e-4)
    assert said == (
        "recipe convolutional (convolutions with batch or group norm): sgd, lr 0.05, momentum 0.9, "
        "weight decay 0.0005, onecycle over 20 epochs"
    )
    assert settle(made, pictures(), epochs=20, accumulate=8)[0].lr == 0.4


def test_what_is_settled_stays_so() -> None:
    """As config.json holds it."""
    made, batches = bf.bayesify(convolutional(), bf.VarianceNetwork()), pictures()
    once, said = settle(made, batches)
    assert settled(once, made, batches, len(batches)) == (once, said)
    bare, said = settle(made, batches, recipe=None)
    assert said is None
    assert settled(bare, made, batches, len(batches)) == (bare, None)


def test_explicit_options_win() -> None:
    made = bf.bayesify(convolutional(), bf.Point())
    given = {"epochs": 3, "weight_decay": 0.0, "schedule": "linear", "momentum": 0.5, "clip_norm": 2.0}
    options, said = settle(made, pictures(), **given)
    assert {name: getattr(options, name) for name in given} == given
    assert said is not None and said.endswith(": sgd, lr 0.05, constant over 3 epochs")
    other, _ = settle(made, pictures(), optimizer="adam")
    assert (other.lr, other.momentum, other.weight_decay) == (1e-3, None, 5e-4)
    named, _ = settle(made, pictures(), recipe="transformer", lr=0.5)
    assert (named.recipe, named.optimizer, named.lr) == ("transformer", "adamw", 0.5)


@pytest.mark.parametrize(
    "given",
    [
        {"recipe": None},
        {"recipe": "none"},
        {"lr": 0.1},
        {"lr": 0.1, "schedule": "cosine", "clip_norm": 1.0},
        {"optimizer": lambda parameters: torch.optim.SGD(parameters, 0.1)},
    ],
)
def test_the_bare_optimiser(given: dict[str, Any]) -> None:
    options, said = settle(bf.bayesify(convolutional(), bf.Point()), pictures(), epochs=3, **given)
    assert said is None
    assert options == FitOptions(**{"epochs": 3, **given, "recipe": "none"})


def test_the_epochs_where_none_are_given() -> None:
    """At least 2,000 steps, three of them an epoch; with a bare optimiser, too."""
    made = bf.bayesify(convolutional(), bf.Point())
    assert settle(made, pictures())[0].epochs == settle(made, pictures(), recipe=None)[0].epochs == 667
    assert settled(FitOptions(), made, pictures(), None)[0].epochs == 30


def test_a_sampler_keeps_its_own_settings() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 2))
    chain = bf.bayesify(copy.deepcopy(net), bf.ThermostatMCMC(), num_data=96)
    options, said = settle(chain, pictures(), epochs=2)
    assert [options.optimizer, options.weight_decay, options.schedule] == [None] * 3
    assert options.lr == pytest.approx(2e-3 * math.sqrt(32 / 64))  # behind an epoch of a plain network
    assert said is not None and said.endswith("lr 0.00141, constant over 1 epochs")
    exact = bf.bayesify(copy.deepcopy(net), bf.ThermostatMCMC(temperature=1.0), num_data=96)
    options, said = settle(exact, pictures(), epochs=2)
    assert [options.optimizer, options.lr, options.schedule, options.plain_first] == [None] * 4
    assert said is not None and said.endswith("): the method's own optimiser, constant over 2 epochs")


def test_fit_says_what_it_chose(capsys: pytest.CaptureFixture[str]) -> None:
    history = bf.fit(model("mc_vi"), loader("own"), epochs=2, seed=0)
    line = next(note for note in history.notes if note.startswith("recipe plain"))
    assert line in capsys.readouterr().err
    assert not any(note.startswith("recipe") for note in quick().notes)


def test_batch_norm_at_rest_at_the_end() -> None:
    """In the last half of four epochs its statistics stay."""
    made = bf.bayesify(convolutional(), bf.Point())
    seen: list[torch.Tensor] = []
    bf.fit(
        made,
        pictures(),
        epochs=4,
        frozen_norm=0.5,
        progress=False,
        on_epoch=lambda model, _: seen.append(model.net[1].running_mean.clone()),
    )
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[1], seen[2]) and torch.equal(seen[2], seen[3])


def test_a_run_of_a_recipe_goes_on_bit_for_bit(tmp_path: Any) -> None:
    def make() -> bf.BayesianModule:
        torch.manual_seed(0)
        return bf.bayesify(convolutional(), bf.Point())

    options: dict[str, Any] = {"progress": False, "seed": 0, "epochs": 4}

    def stop(_: Any, epoch: int) -> None:
        if epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bf.fit(make(), pictures(), folder=tmp_path, checkpoint_every=1, on_epoch=stop, **options)
    again, whole = make(), make()
    bf.fit(again, pictures(), folder=tmp_path, **options)
    bf.fit(whole, pictures(), **options)
    for p, q in zip(again.state_dict().values(), whole.state_dict().values(), strict=True):
        assert torch.equal(p, q)
    with pytest.raises(
        ValueError, match=r"was trained by another optimiser than this Adam \(by SGD\): resume it"
    ):
        bf.fit(make(), pictures(), folder=tmp_path, recipe=None, **options)
