"""Optimisers by name: their settings, and which parameters decay."""

from typing import Any

import pytest
from torch import nn

import bayesify as bf
from bayesify.engine.optimizers import OPTIMIZERS, make_optimizer, named_optimizer
from bayesify.engine.options import FitOptions


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def decaying(method: bf.methods.Method, likelihood: Any = "categorical") -> set[str]:
    made = bf.bayesify(net(), method, likelihood, num_data=10)
    optimizer = named_optimizer(made, "sgd", None, 0.9, 0.5)
    names = {id(p): name for name, p in made.named_parameters()}
    grouped = {
        names[id(p)]: round(group["weight_decay"] * group["lr"] / optimizer.defaults["lr"], 9)
        for group in optimizer.param_groups
        for p in group["params"]
    }
    assert set(grouped) == set(names.values()) and set(grouped.values()) <= {0.0, 0.5}
    return {name for name, decay in grouped.items() if decay}


NET = {f"net.{i}.{name}" for i in (0, 1, 3) for name in ("weight", "bias")}
NORM = {"net.1.weight", "net.1.bias"}


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (bf.Point(), NET),
        (bf.Point(prior="normal"), set()),
        (bf.Point(prior="normal", where=bf.where.linear), NORM),
        (bf.MonteCarloVI(), NORM),
        (bf.DensityPropagation(where=bf.where.output), NET - {"net.3.weight", "net.3.bias"}),
        (bf.EnsemblePatching(l2=1e-4), set()),
        (bf.EnsemblePatching(prior_precision=1.0), set()),
    ],
)
def test_what_has_a_prior_does_not_decay(method: bf.methods.Method, expected: set[str]) -> None:
    assert decaying(method) == expected


def test_components_without_a_prior_decay() -> None:
    patched = {f"posterior.components.{i}.{name}" for i in (1, 3) for name in ("weight", "bias")}
    assert decaying(bf.EnsemblePatching(3)) == NET | patched
    widths = bf.EnsemblePatching(3, std=0.1, learn_std=True)
    assert decaying(widths) == set()  # the KL that holds the widths holds the weights, too


def test_members_decay_and_noise_does_not() -> None:
    found = decaying(bf.DeepEnsemble(num_members=2), bf.likelihood("normal", learn_std=True))
    assert found == NET | {name.replace("net.", "posterior.copies.0.") for name in NET}


@pytest.mark.parametrize(("name", "power"), [("sgd", 1.0), ("adam", 0.5), ("adamw", 0.5)])
def test_components_go_as_far_as_what_every_step_moves(name: str, power: float) -> None:
    """A step has gradients for one of three; without momentum SGD then goes 1/3 as far, and Adam 1/√3."""

    def rates(method: bf.methods.Method) -> list[float]:
        made = bf.bayesify(net(), method, num_data=10)
        groups = named_optimizer(made, name, 0.2, None, 0.5).param_groups
        decaying = [group for group in groups if group["weight_decay"]]
        assert all(group["lr"] * group["weight_decay"] == pytest.approx(0.2 * 0.5) for group in decaying)
        return [group["lr"] for group in decaying]

    both = pytest.approx([0.2, 0.2 * 3**power])
    assert rates(bf.EnsemblePatching(3)) == rates(bf.EnsemblePatching(3, assignment="element")) == both
    assert rates(bf.DeepEnsemble(bf.EnsemblePatching(3), 2)) == both
    for other in (bf.Point(), bf.MCDropout(), bf.EnsemblePatching(3, assignment="member")):
        assert rates(other) == [0.2]


def test_biases_do_not_decay_under_adamw() -> None:
    """An output bias that started at the mean of the targets would leave it."""
    made = bf.bayesify(nn.Sequential(nn.Linear(2, 2), nn.MultiheadAttention(2, 1)), "point")
    groups = named_optimizer(made, "adamw", 0.1, None, 0.5).param_groups
    still = {id(p) for group in groups if not group["weight_decay"] for p in group["params"]}
    assert {n for n, p in made.net.named_parameters() if id(p) in still} == {
        "0.bias",
        "1.in_proj_bias",
        "1.out_proj.bias",
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_without_decay_there_is_one_group(name: str) -> None:
    made = bf.bayesify(net(), bf.Point())
    optimizer = make_optimizer(made, FitOptions(optimizer=name, weight_decay=0.0))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.0]
    assert type(optimizer).__name__.lower() == name


def test_nesterov() -> None:
    made = bf.bayesify(net(), bf.Point())
    group = make_optimizer(made, FitOptions(optimizer="sgd", lr=0.3, momentum=0.8)).param_groups[0]
    assert (group["lr"], group["momentum"], group["nesterov"]) == (0.3, 0.8, True)


def test_an_optimiser_of_the_methods_own_takes_no_other_settings() -> None:
    made = bf.bayesify(net(), bf.VarianceNetwork(), num_data=10)
    with pytest.raises(
        ValueError, match="weight_decay=0.1: the optimiser of 'variance' is its own and takes no"
    ):
        make_optimizer(made, FitOptions(weight_decay=0.1))
    chain = bf.bayesify(nn.Linear(3, 2), bf.ThermostatMCMC(), num_data=10)
    with pytest.raises(ValueError, match="optimizer=Adam finds a point and does not draw"):
        make_optimizer(chain, FitOptions(optimizer="adam"))
