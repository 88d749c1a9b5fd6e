"""Pruning: the right weights go, exactly as many as asked, the model stays a model, and its file gets smaller."""

from pathlib import Path

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.studies.compress import LOG_STD_OF_NOTHING, prune, pruning_curve, sparsity


def saved(model: bf.BayesianModule, path: Path) -> int:
    """The size of its file."""
    bf.save(model, path)
    return path.stat().st_size


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
    assert curve[0].num_bytes > curve[2].num_bytes > 0


def wide_net() -> nn.Module:
    return nn.Sequential(nn.Linear(100, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, 10))


#: method -> bytes of a weight when all are kept: mean, and log std where each weight has one
STORED = {
    "vdp": (bf.DensityPropagation(), 8),
    "vdp, row": (bf.DensityPropagation(variance="row"), 4),
    "mc_vi": (bf.MonteCarloVI(), 8),
    "point": (bf.Point(), 4),
}


@pytest.mark.parametrize("by", ["magnitude", "signal_to_noise"])
@pytest.mark.parametrize("name", STORED)
def test_the_file_of_a_pruned_model_holds_the_rest_only(name: str, by: str, tmp_path: Path) -> None:
    """A kept weight costs its values and four bytes for its place; beside them stand 4 kB of biases and norms, and
    the header."""
    method, each = STORED[name]
    if by == "signal_to_noise" and name == "point":
        pytest.skip("no std per weight")
    model = bf.bayesify(wide_net(), method, num_data=10)
    model(torch.randn(8, 100))  # moves the running statistics
    with torch.no_grad():
        for parameter in model.posterior.parameters():
            parameter.add_(torch.rand_like(parameter))  # equal values would be stored once
    model.eval()
    pruned = prune(model, 0.95, by)
    whole, small = (saved(m, tmp_path / f"{i}.safetensors") for i, m in enumerate((model, pruned)))
    num_weights = 100 * 300 + 300 * 10
    spared = num_weights * (each - 0.05 * (each + 4))
    assert whole - small == pytest.approx(spared, rel=0.02)
    back = bf.load(tmp_path / "1.safetensors", wide_net()).eval()
    for key, value in pruned.state_dict().items():
        assert torch.equal(value, back.state_dict()[key])
    x = torch.randn(5, 100)
    first, second = (m.predict(x, 4, generator=torch.Generator().manual_seed(0)) for m in (pruned, back))
    assert torch.equal(first.mean, second.mean) and torch.equal(first.variance, second.variance)


def test_the_zeros_of_a_file_keep_their_sign_and_tied_weights_stay_one(tmp_path: Path) -> None:
    model = bf.bayesify(nn.ModuleList([nn.Linear(50, 50), nn.Linear(50, 50)]), bf.Point())
    with torch.no_grad():
        model.net[1].weight = model.net[0].weight
        model.net[0].weight[:, 3:] = 0.0
        model.net[0].weight[0, :] = -0.0
    assert saved(model, tmp_path / "m.safetensors") < 4 * 50 * 50 // 2
    net = nn.ModuleList([nn.Linear(50, 50), nn.Linear(50, 50)])
    back = bf.load(tmp_path / "m.safetensors", net)
    for layer in back.net:
        assert torch.equal(layer.weight, model.net[0].weight)
        assert torch.equal(layer.weight.signbit(), model.net[0].weight.signbit())


def test_the_curve_of_a_plain_network_has_sizes_too() -> None:
    net = wide_net()
    curve = pruning_curve(net, sparsity, shares=(0.0, 0.95))
    assert curve[0].num_bytes > 4 * curve[1].num_bytes
    assert sparsity(net) == 0


@pytest.mark.parametrize(("share", "by"), [(1.0, "magnitude"), (-0.1, "magnitude"), (0.5, "size")])
def test_wrong_arguments_are_named(share: float, by: str) -> None:
    with pytest.raises(ValueError, match="share=" if by == "magnitude" else "by='size'"):
        prune(make_model(), share, by)
