"""Pruning: the right weights go, exactly as many as asked, and the model stays a model."""

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.compress import prune, pruning_curve, sparsity
from bayesify.compress.pruning import LOG_STD_OF_NOTHING


def make_model() -> bf.BayesianModule:
    net = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 5))
    return bf.bayesify(net, bf.DensityPropagation(), num_data=10)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.9])
@pytest.mark.parametrize("per_layer", [False, True])
def test_exactly_the_share_goes_and_the_smallest_first(share: float, per_layer: bool) -> None:
    model = make_model()
    pruned = prune(model, share, per_layer=per_layer)
    assert sparsity(pruned) == pytest.approx(share)
    assert sparsity(model) == 0  # a copy was pruned
    groups = [[0], [3]] if per_layer else [[0, 3]]
    for group in groups:
        before = torch.cat([model.net[i].weight.flatten() for i in group]).abs()
        after = torch.cat([pruned.net[i].weight.flatten() for i in group])
        if share:
            assert before[after == 0].max() <= before[after != 0].min()
    assert torch.equal(pruned.net[0].bias, model.net[0].bias)


def test_a_pruned_weight_has_no_variance_left() -> None:
    pruned = prune(make_model(), 0.5)
    weight, log_std = pruned.net[0].weight, pruned.get_parameter("posterior.q.0.weight.log_scale")
    assert torch.equal(weight == 0, log_std == LOG_STD_OF_NOTHING)
    assert pruned(torch.randn(3, 10)).var.isfinite().all()


def test_signal_to_noise_keeps_a_small_weight_that_is_certain() -> None:
    model = make_model()
    with torch.no_grad():
        model.net[0].weight[0, 0] = 1e-4
        model.get_parameter("posterior.q.0.weight.log_scale")[0, 0] = -20.0
    assert prune(model, 0.5).net[0].weight[0, 0] == 0
    assert prune(model, 0.5, by="signal_to_noise").net[0].weight[0, 0] != 0


def test_plain_networks_and_other_methods_are_pruned_too() -> None:
    net = nn.Linear(10, 10)
    assert sparsity(prune(net, 0.3)) == pytest.approx(0.3)
    assert sparsity(prune(bf.bayesify(net, bf.MonteCarloVI()), 0.3)) == pytest.approx(0.3)
    assert sparsity(prune(bf.bayesify(nn.Linear(10, 10), bf.Point()), 0.3)) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="signal_to_noise"):
        prune(nn.Linear(10, 10), 0.3, by="signal_to_noise")


def test_a_curve_measures_the_pruned_models() -> None:
    curve = pruning_curve(make_model(), sparsity, shares=(0.0, 0.5, 0.8))
    assert [p.share for p in curve] == [0.0, 0.5, 0.8]
    assert [p.value for p in curve] == pytest.approx([0.0, 0.5, 0.8])


@pytest.mark.parametrize(("share", "by"), [(1.0, "magnitude"), (-0.1, "magnitude"), (0.5, "size")])
def test_wrong_arguments_are_named(share: float, by: str) -> None:
    with pytest.raises(ValueError, match="share=" if by == "magnitude" else "by='size'"):
        prune(make_model(), share, by)
