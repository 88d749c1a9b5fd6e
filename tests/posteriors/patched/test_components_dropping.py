"""A component fixed at zero: dropout and dropconnect."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from component_cases import assert_law, make
from torch import nn

import bayesify as bf


class UpConv(nn.ConvTranspose2d): ...


@pytest.mark.parametrize("assignment", ["dropout", "dropconnect"])
def test_dropping_has_the_law_of_torchs_dropout(assignment: str) -> None:
    """4000 outputs of a layer of three inputs against the enumerated law of F.dropout on its inputs (dropout) or
    on its weights (dropconnect), and torch's own outputs against the same law."""
    p, n = 0.3, 4000
    layer = nn.Linear(3, 1)
    x = torch.randn(1, 3)
    model = bf.bayesify(layer, bf.EnsemblePatching(assignment=assignment, drop_prob=p), num_data=10)
    law: dict[float, float] = {}
    with torch.no_grad():
        for mask in itertools.product((0.0, 1.0), repeat=3):
            kept = torch.tensor(mask) / (1 - p)
            value = round(F.linear(x * kept, layer.weight, layer.bias).item(), 5)
            law[value] = (1 - p) ** sum(mask) * p ** (3 - sum(mask))
        ours = [round(model(x).item(), 5) for _ in range(n)]
        torchs = [round(F.linear(F.dropout(x, p), layer.weight, layer.bias).item(), 5) for _ in range(n)]
    values = list(law)
    for outputs in (ours, torchs):
        assert_law(torch.tensor([values.index(v) for v in outputs]), list(law.values()))


def test_dropout_drops_input_units_and_dropconnect_entries() -> None:
    nets = {
        "linear": (nn.Linear(6, 5), lambda w: w.mT),
        "conv": (nn.Conv2d(6, 4, 3), lambda w: w.movedim(-3, 1)),
        "grouped": (
            nn.Conv1d(6, 4, 3, groups=2),
            lambda w: w.view(-1, 2, 2, 3, 3).movedim(3, 2).flatten(1, 2),
        ),
        "transposed": (nn.ConvTranspose2d(6, 4, 3, groups=2), lambda w: w),
        "transposed, a subclass": (UpConv(6, 4, 3), lambda w: w),
        "embedding": (nn.Embedding(6, 4), lambda w: w),
    }
    for name, (layer, by_input) in nets.items():
        options = {"drop_prob": 0.5, "where": bf.where.all}
        weights = {
            how: bf.bayesify(
                type(layer)(**_arguments(layer)), bf.EnsemblePatching(assignment=how, **options)
            ).posterior.draw(0, 200)["weight"]
            for how in ("dropout", "dropconnect")
        }
        rows = (by_input(weights["dropout"]) != 0).flatten(2)  # (draws, inputs, rest)
        assert rows.shape[1] == 6, name
        assert (rows == rows[..., :1]).all(), name
        assert 0 < rows[..., 0].float().mean() < 1
        entries = (by_input(weights["dropconnect"]) != 0).flatten(2)
        assert not (entries == entries[..., :1]).all(), name


def _arguments(layer: Any) -> dict[str, Any]:
    if isinstance(layer, nn.Linear):
        return {"in_features": 6, "out_features": 5}
    if isinstance(layer, nn.Embedding):
        return {"num_embeddings": 6, "embedding_dim": 4}
    return {"in_channels": 6, "out_channels": 4, "kernel_size": 3, "groups": layer.groups}


def test_a_component_fixed_at_zero_leaves_the_biases_alone() -> None:
    model = make(assignment="dropout")
    assert model.summary().random == ["0.weight", "1.weight"]
    assert "biases" in model.summary().deterministic["0.bias"]
    assert model.summary().overhead == 0
