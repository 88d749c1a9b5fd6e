"""bf.EnsemblePatching: where it patches, and bad options."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf


def test_the_default_place_depends_on_the_assignment() -> None:
    texts = {
        a: bf.EnsemblePatching(assignment=a).where.text for a in ("layer", "element", "dropout", "member")
    }
    expected = {
        "layer": "(norm | output)",
        "element": "(norm | output)",
        "dropout": "(linear | conv)",
        "member": "all",
    }
    assert texts == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_components": 1}, r"num_components=1 must be at least 2; for one component use bf.Point\(\)"),
        (
            {"num_components": 2.5},
            "num_components=2.5 must be a whole number of at least 2 and at most 10000, e.g. num_components=5",
        ),
        ({"num_components": "5"}, "num_components='5' must be a whole number"),
        ({"num_components": None}, "num_components=None must be a whole number"),
        ({"coordinate_steps": 2.5}, "coordinate_steps=2.5 must be a whole number of at least 0"),
        ({"mixing": 0.5}, "mixing=0.5 must be a text or a list of numbers, e.g. mixing='uniform'"),
        ({"mixing": ["a", "b"], "num_components": 2}, "must be a text or a list of numbers"),
        ({"prior_precision": "1"}, "prior_precision='1' must be a number of at least 0"),
        ({"assignment": "elment"}, "assignment='elment' does not exist; .* Did you mean 'element'?"),
        ({"mixing": (0.5, 0.6)}, "must hold num_components=5 positive numbers"),
        ({"mixing": (0.5, 0.6), "num_components": 2}, "must sum to one, not to 1.1"),
        ({"mixing": (1.5, -0.5), "num_components": 2}, "positive numbers"),
        ({"mixing": "even"}, "mixing='even' must be 'uniform', 'learned' or 5 probabilities"),
        ({"mixing": (0.5, 0.5), "assignment": "dropout"}, "takes drop_prob= in place of probabilities"),
        ({"drop_prob": 1.0}, "drop_prob=1.0 must be a number between 0 and 1"),
        ({"std": -1.0}, "std=-1.0 must be a number of at least 0, e.g. std=0.0"),
        ({"spread": -0.1}, "spread=-0.1 must be a number of at least 0"),
        ({"temperature": 0.0}, "temperature=0.0 must be a number above 0"),
        ({"prior_precision": -1.0}, "prior_precision=-1.0 must be a number of at least 0"),
        ({"prior_precision": {"weight": 1.0}}, "a dict with patched_weight, patched_bias"),
        ({"l2": {"weight": 1.0}}, "l2=.* a dict with patched_weight"),
        ({"kl": "exact"}, "kl='exact' does not exist; choose from auto, l2, full, monte_carlo"),
        ({"init": "random"}, "init='random' does not exist"),
        ({"kl": "full"}, "the KL of a component of width 0 is infinite; give std= a positive number"),
        ({"learn_std": True}, "infinite; give std="),
        ({"learn_std": True, "std": 0.1, "kl": "l2"}, "use kl='auto' and prior_precision="),
        ({"running_stats": "own"}, "running_stats='own' does not exist"),
        ({"running_stats": "component", "assignment": "element"}, "use running_stats='shared'"),
        ({"per_example": True, "mixing": "learned"}, "use per_example=False"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bf.EnsemblePatching(**options)


def test_nothing_to_patch_is_named() -> None:
    bare = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False), nn.InstanceNorm2d(4), nn.Flatten()
    )
    with pytest.raises(
        ValueError, match=r"norm layers without parameters \(1, 2\): nothing to patch. .* affine=True"
    ):
        bf.bayesify(bare, bf.EnsemblePatching(where=bf.where.norm))
    with pytest.raises(ValueError, match="where=norm selects no parameter"):
        bf.bayesify(nn.Linear(2, 2), bf.EnsemblePatching(where=bf.where.norm))
    with pytest.raises(ValueError, match="drops weight matrices only"):
        bf.bayesify(nn.BatchNorm1d(2), bf.EnsemblePatching(assignment="dropout", where=bf.where.norm))
    some = nn.Sequential(nn.LayerNorm(4, elementwise_affine=False), nn.LayerNorm(4), nn.Linear(4, 2))
    summary = bf.bayesify(some, bf.EnsemblePatching(), num_data=10).summary()
    assert "norm layers without parameters, nothing to patch: 0" in str(summary)


def test_checkpointing_inside_a_patched_network_is_refused() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=True)

    model = bf.bayesify(Checkpointed(), bf.EnsemblePatching(), num_data=10)
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="activation checkpointing inside the network"):
        model(x).sum().backward()


def test_norm_layers_of_every_kind_are_patched() -> None:
    layers = {
        "batch": (nn.BatchNorm1d(4), (6, 4)),
        "batch 2d": (nn.BatchNorm2d(4), (6, 4, 3, 3)),
        "batch 3d": (nn.BatchNorm3d(4), (6, 4, 3, 3, 3)),
        "layer": (nn.LayerNorm(4), (6, 4)),
        "group": (nn.GroupNorm(2, 4), (6, 4)),
        "instance": (nn.InstanceNorm1d(4, affine=True), (6, 4, 3)),
        "rms": (nn.RMSNorm(4), (6, 4)),
    }
    for name, (layer, shape) in layers.items():
        for assignment in ("layer", "element"):
            method = bf.EnsemblePatching(3, assignment, spread=1.0, where=bf.where.norm)
            model = bf.bayesify(copy.deepcopy(layer), method, num_data=10)
            assert len(model.summary().random) == len(list(layer.parameters())), name
            x = torch.randn(shape)
            outputs = [model(x).detach() for _ in range(12)]
            assert any(not torch.equal(outputs[0], other) for other in outputs), name
