"""Plain networks out of a patched one, and what its components start from."""

import math
from typing import Any

import pytest
import torch
from patched_cases import batch, patched, small_cnn
from torch import nn

import bayesify as bf


def test_every_member_is_a_plain_network() -> None:
    model = patched(spread=1.0)
    x = batch()[0]
    nets = [model.member(k).eval() for k in range(5)]
    assert all(type(m) is nn.Sequential and not m[1]._forward_pre_hooks for m in nets)
    assert torch.equal(nets[0][5].weight, model.net[5].weight)
    others = model.get_parameter("posterior.components.5.weight")
    assert torch.equal(nets[3][5].weight, others[2])
    outputs = [net(x) for net in nets]
    assert all(not torch.equal(a, b) for i, a in enumerate(outputs) for b in outputs[:i])
    mixed = model.member({"1": 2, "5": 4})
    assert torch.equal(mixed[1].weight, nets[2][1].weight) and torch.equal(mixed[5].bias, nets[4][5].bias)
    assert torch.equal(model.member([2, 4])[5].weight, mixed[5].weight)
    assert torch.equal(model.member({"5": 4})[1].weight, nets[0][1].weight)
    element = patched(assignment="element")
    assert torch.equal(element.member({"5": 4})[5].bias, element.member(4)[5].bias)
    with torch.no_grad():
        model.net[5].weight.zero_()
    assert nets[0][5].weight.any()  # a copy


def test_every_draw_of_layers_is_a_member() -> None:
    model = patched(num_components=2, spread=1.0)
    members = {(i, j): model.member([i, j]) for i in range(2) for j in range(2)}
    for _ in range(10):
        draw = model.draw()
        same = [k for k, m in members.items() if all(map(torch.equal, m.parameters(), draw.parameters()))]
        assert len(same) == 1


@pytest.mark.parametrize("probs", ["uniform", (0.1, 0.2, 0.7)])
def test_folding_averages_the_centroids(probs: Any) -> None:
    model = patched(num_components=3, mixing=probs)
    p = (1 / 3,) * 3 if probs == "uniform" else probs
    expected = sum(q * model.member(k)[5].weight for k, q in enumerate(p))
    torch.testing.assert_close(model.fold()[5].weight, expected)
    torch.testing.assert_close(model.mean_net()[5].weight, expected)
    assert torch.equal(model.fold()[0].weight, model.net[0].weight)


def test_the_mean_of_dropped_weights_is_the_network() -> None:
    for assignment in ("dropout", "dropconnect"):
        model = patched(assignment=assignment)
        torch.testing.assert_close(model.fold()[5].weight, model.net[5].weight)


def test_members_that_do_not_exist_are_named() -> None:
    model = patched()
    for index, message in (
        (5, "index 5 must be a whole number in 0..4"),
        ([0], "1 indices for the 2 patched 1, 5"),
        ({"0": 1}, "'0' is not patched; patched are 1, 5"),
        (True, "index True"),
    ):
        with pytest.raises(ValueError, match=message):
            model.member(index)
    with pytest.raises(TypeError, match=r"has no numbered members: use model.draw\(\)"):
        patched(assignment="dropout").member(0)
    with pytest.raises(TypeError, match=r"use draw\(\) or mean_net\(\)"):
        bf.bayesify(small_cnn(), "mc_vi", num_data=10).member(0)
    with pytest.raises(TypeError, match=r"use mean_net\(\)"):
        bf.bayesify(small_cnn(), "point").fold()
    ensemble = bf.bayesify(small_cnn(), bf.DeepEnsemble(num_members=2))
    assert torch.equal(ensemble.member(1)[5].weight, ensemble.posterior.copies[0][5].weight)
    with pytest.raises(ValueError, match=r"index 2 must be a whole number in 0..1"):
        ensemble.member(2)


def test_components_start_apart() -> None:
    """`copies`: the spread is that many root mean squares (72 × 5 × 4 numbers); an all-zero bias counts as 0.1."""
    model = patched(spread=0.2)
    others, own = model.get_parameter("posterior.components.5.weight").detach(), model.net[5].weight.detach()
    rms = own.square().mean().sqrt()
    assert ((others - own).std() / rms).item() == pytest.approx(0.2, rel=0.1)
    assert model.get_parameter("posterior.components.1.bias").abs().max() > 0
    equal = patched(spread=0.0)
    assert torch.equal(equal.member(3)[5].weight, equal.net[5].weight)


def test_a_pretrained_network_predicts_nearly_as_before() -> None:
    net = small_cnn().eval()
    x = batch()[0]
    before = net(x)
    model = bf.bayesify(net, bf.EnsemblePatching(spread=0.01), num_data=10)
    assert torch.allclose(model.predict(x, 10).probs, before.softmax(1), atol=0.02)
    assert torch.equal(model.member(0)(x), before)


def test_fresh_components_and_a_given_gamma() -> None:
    model = patched(init="fresh")
    gamma = model.get_parameter("posterior.components.1.weight")
    assert ((gamma >= 0) & (gamma <= 1)).all() and gamma.std() > 0.1  # U(0, 1), as torch once did
    assert torch.equal(model.net[1].weight, torch.ones(8))
    weight = model.get_parameter("posterior.components.5.weight")
    assert weight.abs().max() <= 1 / math.sqrt(72) and not torch.equal(weight[0], weight[1])
    regression = patched(gamma=0.2, spread=0.0)
    assert torch.equal(regression.net[1].weight, torch.full((8,), 0.2))
    assert torch.equal(regression.get_parameter("posterior.components.1.weight"), torch.full((4, 8), 0.2))
