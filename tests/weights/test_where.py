"""Which parameters become random."""

from operator import itemgetter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.weights.observing.watch import layer_of
from bayesify.weights.where import Where, kind_of

where = bf.where


class Backwards(nn.Module):
    """Registered in the opposite order of execution."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8)
        self.hidden = nn.Linear(8, 8)
        self.stem = nn.Conv1d(1, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.hidden(self.stem(x[:, None]).flatten(1)).relu()))


def chosen(selector: Where, example: bool = False) -> set[str]:
    x = torch.randn(2, 4) if example else None
    model = bf.bayesify(Backwards(), bf.MonteCarloVI(where=selector), example=x)
    return {name.rpartition(".")[0] for name in model.summary().random}


def test_kinds_and_patterns() -> None:
    assert chosen(where.all) == {"head", "norm", "hidden", "stem"}
    assert chosen(where.norm) == {"norm"}
    assert chosen(where.linear) == {"head", "hidden"}
    assert chosen(where.conv) == {"stem"}
    assert chosen(where.matching("^h")) == {"head", "hidden"}


def test_combinations() -> None:
    assert chosen(where.norm | where.conv) == {"norm", "stem"}
    assert chosen(where.linear & ~where.matching("head")) == {"hidden"}
    assert chosen(~where.linear & ~where.conv) == {"norm"}
    assert repr(where.norm | ~where.output & where.matching("a")) == "(norm | (~output & matching('a')))"


def test_input_and_output_are_found_by_running() -> None:
    assert chosen(where.input, example=True) == {"stem"}
    assert chosen(where.output, example=True) == {"head"}
    assert chosen(where.linear & ~where.output, example=True) == {"hidden"}


def test_without_an_example_the_order_of_registration_decides_and_the_summary_says_so() -> None:
    assert chosen(where.input) == {"head"}
    assert chosen(where.output) == {"stem"}
    model = bf.bayesify(Backwards(), bf.MonteCarloVI(where=where.output))
    assert "by registration order (give example=" in str(model.summary())
    model = bf.bayesify(Backwards(), bf.MonteCarloVI(where=where.output), example=torch.randn(2, 4))
    assert "decided by running the example" in str(model.summary())


def test_the_example_run_leaves_no_trace() -> None:
    net = Backwards().train()
    net.head.eval()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    x = torch.randn(2, 4)
    state = torch.get_rng_state()
    bf.bayesify(net, bf.MonteCarloVI(where=where.input, sampling="local"), example=x)
    assert net.training and not net.head.training
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


class TwoStems(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image, self.table = nn.Conv1d(1, 2, 3), nn.Linear(3, 4)
        self.joined, self.late = nn.Linear(8, 4), nn.Linear(7, 2)

    def forward(self, image: Tensor, table: Tensor) -> Tensor:
        seen = torch.cat([self.image(2 * image[:, None] - 1).flatten(1), self.table(table)], 1)
        return self.late(torch.cat([self.joined(seen), table], 1))


def test_all_layers_that_see_an_input_are_input_layers() -> None:
    """Not those that see an input beside what other layers made of it."""
    example = (torch.randn(2, 4), torch.randn(2, 3))
    model = bf.bayesify(TwoStems(), bf.MonteCarloVI(where=where.input), example=example)
    assert set(model.summary().random) == {"image.weight", "image.bias", "table.weight", "table.bias"}


def test_a_dict_of_inputs_is_an_example_too() -> None:
    net = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = bf.bayesify(net, bf.MonteCarloVI(where=where.input), example={"src": torch.randn(2, 3, 8)})
    assert model.summary().random == ["self_attn.in_proj_weight", "self_attn.in_proj_bias"]


def test_tied_weights_are_chosen_by_any_of_their_names() -> None:
    net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    net[1].weight = net[0].weight
    model = bf.bayesify(net, bf.MonteCarloVI(where=where.matching(r"^1\.")))
    assert model.summary().random == ["0.weight"]


def test_frozen_parameters_stay_and_are_named() -> None:
    net = Backwards()
    net.stem.weight.requires_grad_(False)
    model = bf.bayesify(net, bf.MonteCarloVI(where=where.all))
    assert model.summary().deterministic == {"stem.weight": "frozen (requires_grad=False)"}


def test_by_default_normalisation_stays_deterministic() -> None:
    model = bf.bayesify(Backwards(), "vdp")
    assert set(model.summary().deterministic) == {"norm.weight", "norm.bias"}
    assert "not in where=~norm" in str(model.summary())


def test_layers_of_other_libraries_are_known_by_name() -> None:
    class LlamaRMSNorm(nn.Module): ...

    class Conv1D(nn.Module): ...

    class Normalizer(nn.Module): ...

    class StdConv2d(nn.Module): ...

    known = (LlamaRMSNorm, Conv1D, Normalizer, StdConv2d)
    assert [kind_of(m()) for m in known] == ["norm", "linear", "other", "conv"]


def test_an_example_that_uses_no_parameter() -> None:
    class Idle(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return x

    with pytest.raises(ValueError, match="example: running the network on it used none"):
        bf.bayesify(Idle(2, 2), bf.MonteCarloVI(where=where.input), example=torch.ones(1, 2))


class Heads(nn.Module):
    """Two heads on one trunk; `how` says what becomes of them."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.trunk, self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 3, bias=False)
        nn.utils.parametrizations.weight_norm(self.b)
        self.how = how

    def forward(self, x: Tensor) -> Any:
        h = self.trunk(x).relu()
        a, b = self.a(h), nn.functional.softplus(self.b(h)) + 1e-3
        if self.how == "written":
            both = torch.zeros(2, *a.shape)
            both[0] = a
            both[1] = b
            return both
        return {
            "tuple": (a, b),
            "dict": {"mean": a, "parts": [b]},
            "joined": torch.cat([a, b], 1),
            "logits": {"logits": a, "features": h, "other": b},
            "trunk too": (a, h),
            "custom": Doubled.apply(b),
        }[self.how]


class Doubled(torch.autograd.Function):
    """torch does not announce it to those who watch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x


@pytest.mark.parametrize(
    ("how", "output", "layers"),
    [
        ("tuple", None, {"a", "b"}),
        ("tuple", itemgetter(0), {"a"}),
        ("dict", None, {"a", "b"}),
        ("joined", None, {"a", "b"}),
        ("written", None, {"a", "b"}),
        ("logits", None, {"a"}),
        ("trunk too", None, {"a", "trunk"}),
        ("custom", None, {"b"}),
    ],
)
def test_every_layer_behind_the_prediction_is_an_output_layer(
    how: str, output: Any, layers: set[str]
) -> None:
    net, x = Heads(how), torch.randn(2, 4)
    method = bf.MonteCarloVI(where=where.output)
    model = bf.bayesify(net, method, "heteroscedastic", output=output, example=x)
    assert {layer_of(name) for name in model.summary().random} == layers


def test_a_residual_sum_has_both_summands_behind_it() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.hidden, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            return x + self.last(self.hidden(x).relu())

    model = bf.bayesify(Residual(), bf.MonteCarloVI(where=where.output), example=torch.randn(2, 4))
    assert {layer_of(name) for name in model.summary().random} == {"stem", "last"}
