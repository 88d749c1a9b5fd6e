"""The law of the assignments: paper 2, eq. 1, 4, 5 and Table 2."""

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from component_cases import FAILURE_RATE, assert_law, drawn, make
from scipy import stats
from torch import nn

import bayesify as bf
from bayesify.posteriors.patched.choices import assign


@pytest.mark.parametrize("probs", [[1 / 3, 1 / 3, 1 / 3], [0.2, 0.7, 0.1]])
@pytest.mark.parametrize("assignment", ["layer", "element"])
def test_assignments_have_their_probabilities(assignment: str, probs: list[float]) -> None:
    """6000 draws of each weight."""
    model = make(assignment=assignment, mixing=probs)
    z = drawn(model, 6000)
    for name in ("0.weight", "0.bias", "1.weight"):
        assert_law(z[name].reshape(6000, -1)[:, 0], probs)
    passes: Counter[int] = Counter()
    generator = torch.Generator().manual_seed(1)
    for _ in range(3000):  # the eager pass draws on the host, the others on the device
        chosen = assign(model.posterior, bf.posteriors.Call((), {}, generator)).by_unit[
            "0" if assignment == "layer" else "0.bias"
        ]
        passes[chosen if isinstance(chosen, int) else int(chosen[0])] += 1
    assert_law(torch.tensor(list(passes.elements())), probs)


def test_a_layer_is_one_component_and_layers_are_independent() -> None:
    """EMP, 8000 draws: weight and bias agree always, the pair of two layers has the product law."""
    z = drawn(make(assignment="layer"), 8000)
    for layer in ("0", "1"):
        both = torch.cat([z[f"{layer}.weight"].flatten(1), z[f"{layer}.bias"]], 1)
        assert (both == both[:, :1]).all()
    pairs = 3 * z["0.bias"][:, 0] + z["1.bias"][:, 0]
    assert_law(pairs, [1 / 9] * 9)


def test_elements_are_independent() -> None:
    """ECMP, 8000 draws: any two entries, of one tensor, of weight and bias, or of two layers."""
    z = drawn(make(assignment="element"), 8000)
    w, b, v = z["0.weight"].flatten(1), z["0.bias"], z["1.weight"].flatten(1)
    for first, second in ((w[:, 0], w[:, 1]), (w[:, 0], b[:, 0]), (w[:, 3], v[:, 0])):
        assert_law(3 * first + second, [1 / 9] * 9)


def test_a_member_is_one_component_of_the_whole_network() -> None:
    model = make(assignment="member")
    z = drawn(model, 600)
    everything = torch.cat([value.flatten(1) for value in z.values()], 1)
    assert (everything == everything[:, :1]).all()
    assert_law(everything[:, 0], [1 / 3] * 3)
    ((n, weights),) = model.posterior.stream(0, 600, 600)
    assert n == 600 and torch.bincount(weights["0.bias"][:, 0].detach().long()).tolist() == [0, 200, 200, 200]
    assert sum(w["0.bias"][0, 0].item() for _, w in model.posterior.stream(0, 6, 1)) == 2 * (1 + 2 + 3)
    assert {int(drawn(model, 1, seed)["0.bias"][0, 0]) for seed in range(40)} == {0, 1, 2}


def test_one_pass_of_members_is_an_explicit_ensemble() -> None:
    model = bf.bayesify(
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        bf.EnsemblePatching(3, "member", init="fresh"),
        num_data=10,
    )
    x = torch.randn(5, 3)
    members = [model.member(k) for k in range(3)]
    with torch.no_grad():
        expected = torch.stack([F.softmax(member(x), 1) for member in members])
        outputs = [F.softmax(model(x), 1) for _ in range(30)]
    found = {next(k for k in range(3) if torch.allclose(o, expected[k], atol=1e-6)) for o in outputs}
    assert found == {0, 1, 2}
    for batched in (False, True):  # predictions take every member once, whatever they are asked for
        for num_draws in (1, 4, 6):
            options = {"num_draws": num_draws, "batched": batched, "keep_samples": True}
            prediction = model.predict(x, **options)
            torch.testing.assert_close(prediction.probs, expected.mean(0))
            assert len(prediction.samples) == 3


@pytest.mark.usefixtures("compile_by_tracing")
@pytest.mark.parametrize("batched", [False, True])
def test_compiled_predictions_take_every_member_once(batched: bool) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model = bf.bayesify(net, bf.EnsemblePatching(3, "member", init="fresh"), num_data=10)
    x = torch.randn(5, 3)
    with torch.no_grad():
        expected = torch.stack([F.softmax(model.member(k).eval()(x), 1) for k in range(3)]).mean(0)
    torch.testing.assert_close(model.predict(x, num_draws=4, compile=True, batched=batched).probs, expected)


def test_members_with_a_width_come_equally_often() -> None:
    model = make(assignment="member", std=1e-3)
    assert [model.posterior.num_passes(n) for n in (1, 3, 4, 20)] == [3, 3, 6, 21]
    uneven = make(assignment="member", mixing=(0.2, 0.2, 0.6))
    assert [uneven.posterior.num_passes(n) for n in (1, 20)] == [1, 20]


def test_relaxed_assignments_are_one_hot_and_have_the_law() -> None:
    """6000 straight-through draws."""
    model = make(assignment="element", mixing="learned")
    mixing = model.posterior.mixing
    with torch.no_grad():
        mixing.logits["0.weight"].get().copy_(torch.tensor([0.1, 0.2, 0.7]).log())
        rows = torch.cat([mixing.relaxed("0.weight") for _ in range(500)])  # (6000, 3)
    assert ((rows == 0) | (rows == 1)).all() and (rows.sum(1) == 1).all()
    assert_law(rows.argmax(1), [0.1, 0.2, 0.7])
    assert_law(drawn(model, 500)["0.weight"], [0.1, 0.2, 0.7])


def test_components_have_a_width() -> None:
    """20,000 numbers: std within z standard errors σ/√(2n), for patched, zero and shared weights."""
    n = 20_000
    z = stats.norm.isf(FAILURE_RATE / 2)
    options = {"std": 0.05, "shared_std": 0.02, "where": bf.where.matching("0.weight"), "drop_prob": 0.5}
    for assignment in ("layer", "dropout"):
        model = make(nn.Sequential(nn.Linear(1, n), nn.Linear(n, 1)), assignment=assignment, **options)
        draw = {name: value[0] for name, value in model.posterior.draw(0, 1).items()}
        patched = draw["0.weight"].flatten() - draw["0.weight"].mean().round(decimals=0)
        assert abs(patched.std() - 0.05) < z * 0.05 / (2 * n) ** 0.5
        shared = draw["1.weight"] - model.net[1].weight
        assert abs(shared.std() - 0.02) < z * 0.02 / (2 * n) ** 0.5
        assert not torch.equal(model(torch.ones(1, 1)), model(torch.ones(1, 1)))
        assert "N(w, 0.02²)" in str(model.summary())
