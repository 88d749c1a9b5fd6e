"""The files of recipes: whole, readable, and what becomes of a method that they do not know."""

import math
from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.engine.optimizers import OPTIMIZERS
from bayesify.engine.schedules import SCHEDULES
from bayesify.methods import METHODS
from bayesify.recipes import OWN, RECIPES, Recipe, recipe, tables
from bayesify.weights.kinds import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_file_that_says_what_all_methods_begin_with(kind: str) -> None:
    found = tables(kind)
    known = {f.name for f in fields(Recipe)}
    for name, table in found.items():
        assert set(table) <= known, name
        assert table.get("optimizer", OWN) in {OWN, *OPTIMIZERS}, name
        assert table.get("schedule", "constant") in SCHEDULES, name
    assert {"optimizer", "lr", "batch_size", "schedule", "epochs", "least_steps"} <= set(found["all"])
    assert set(RECIPES) >= {"auto", "none", kind}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_recipe_for_every_kind(kind: str, name: str) -> None:
    found = recipe(kind, METHODS[name]())
    assert found.epochs > 0
    if found.optimizer != "sgd":
        assert found.momentum is None
    if found.optimizer == OWN:
        assert found.weight_decay is None


def test_members_are_trained_as_one_is() -> None:
    assert recipe("plain", bf.DeepEnsemble(bf.VarianceNetwork())) == recipe("plain", bf.VarianceNetwork())


def test_a_method_that_no_file_knows() -> None:
    """It is trained as all are, or by its own optimiser where it has one."""

    @dataclass(frozen=True)
    class Unknown(bf.Point):
        name = "unknown"  # type: ignore[misc]

    @dataclass(frozen=True)
    class Own(bf.Point):
        name = "unknown"  # type: ignore[misc]

        def optimizer(self, model: nn.Module, lr: float = 1e-3, **options: Any) -> torch.optim.Optimizer:
            return torch.optim.Adagrad(model.parameters(), lr)

    assert recipe("transformer", Unknown()) == Recipe(**tables("transformer")["all"])
    assert recipe("transformer", Own()) == Recipe()


def test_the_rate_goes_down_with_the_batch() -> None:
    """The noise of SGD goes with lr / batch, that of Adam with lr / √batch."""
    sgd, adam = (Recipe(optimizer=name, lr=0.2, batch_size=256) for name in ("sgd", "adam"))
    assert [sgd.lr_for(size) for size in (64, 256, 1024, None)] == pytest.approx([0.05, 0.2, 0.2, 0.2])
    assert [adam.lr_for(size) for size in (64, 256, 1024, None)] == pytest.approx([0.1, 0.2, 0.2, 0.2])
    assert Recipe().lr_for(64) is None


def test_few_steps_make_more_epochs() -> None:
    found = Recipe(epochs=30, least_steps=2000)
    assert [found.epochs_for(steps) for steps in (1, 66, 67, 500, None)] == [2000, 31, 30, 30, 30]
    assert found.epochs_for(3) == math.ceil(2000 / 3)
    capped = Recipe(epochs=30, least_steps=2000, most_epochs=100)
    assert [capped.epochs_for(steps) for steps in (1, 20, 40, 500)] == [100, 100, 50, 30]
    assert recipe("plain", bf.Point()).most_epochs == recipe("plain", bf.IVON()).most_epochs == 100
