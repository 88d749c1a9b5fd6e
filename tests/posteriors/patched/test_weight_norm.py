"""Dropout and DropConnect of weight-normalised layers drop the weights g v/‖v‖, and give no NaN."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import bayesify as bf
from bayesify.nets.resnetpp import WeightNormConv2d, WeightNormLinear, resnetpp_cifar


def former(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(layer)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: parametrizations.weight_norm(nn.Linear(3, 5)), (2, 3)),
    "one norm for all": (lambda: parametrizations.weight_norm(nn.Linear(3, 5), dim=None), (2, 3)),
    "norms of inputs": (lambda: parametrizations.weight_norm(nn.Linear(3, 5), dim=1), (2, 3)),
    "convolution": (lambda: parametrizations.weight_norm(nn.Conv1d(4, 4, 2, groups=2)), (2, 4, 3)),
    "transposed": (lambda: parametrizations.weight_norm(nn.ConvTranspose1d(3, 2, 2)), (2, 3, 3)),
    "former": (lambda: former(nn.Linear(3, 5)), (2, 3)),
    "ResNet++": (lambda: WeightNormLinear(5, 3), (2, 3)),
    "ResNet++, convolution": (lambda: WeightNormConv2d(3, 5, 1), (2, 3, 2, 2)),
}


def weight_of(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        net(x)  # the former weight_norm computes the weight in a hook
    return net[0].weight.detach()  # type: ignore[index]


@pytest.mark.parametrize("assignment", ["dropout", "dropconnect"])
@pytest.mark.parametrize("name", LAYERS)
def test_weights_are_kept_or_zero(name: str, assignment: str) -> None:
    """At a rate of 0.6 all inputs of a unit are dropped in one draw of five (3 inputs): none of 40 in 1e-4."""
    make, shape = LAYERS[name]
    net = nn.Sequential(make())
    x = torch.randn(shape)
    weight = weight_of(net, x).clone()
    method = bf.EnsemblePatching(assignment=assignment, drop_prob=0.6, where=bf.where.all)
    model = bf.bayesify(net, method, bf.likelihood("normal", std=1.0), num_data=10)
    draws = torch.stack([weight_of(model.draw(), x) for _ in range(40)])
    kept = draws != 0
    torch.testing.assert_close(draws, torch.where(kept, weight / 0.4, 0.0))
    assert 0.2 < kept.double().mean() < 0.6 and not kept.flatten(2).any(2).all()
    torch.testing.assert_close(weight_of(model.mean_net(), x), weight)
    for _ in range(20):
        output = model(x)
        assert output.isfinite().all()
        output.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in net.parameters() if p.grad is not None)
    assert model.predict(x, 20, batched=True).mean.isfinite().all()


def test_a_frozen_scale_takes_part_and_comes_back() -> None:
    net = nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 5)))
    scale = net[0].parametrizations.weight.original0.requires_grad_(False)  # type: ignore[union-attr]
    before = scale.clone()
    model = bf.bayesify(net, bf.MCDropout(drop_prob=0.5), num_data=10)
    x = torch.randn(4, 2)
    outputs = [model(x) for _ in range(40)]  # both inputs dropped in a quarter of them
    assert any(torch.equal(y, net[0].bias.expand(4, 5)) for y in outputs)  # type: ignore[operator, union-attr]
    assert torch.equal(scale, before) and all(y.isfinite().all() for y in outputs)


def test_the_scale_is_not_dropped_by_itself() -> None:
    model = bf.bayesify(
        nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 5))), bf.MCDropout(), num_data=10
    )
    assert model.summary().random == ["0.parametrizations.weight.original1"]
    assert "the scale of a weight-normalised layer" in str(model.summary())


def test_it_compiles_whole() -> None:
    torch._dynamo.reset()
    net = nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 5)), nn.ReLU(), nn.Linear(5, 2))
    model = bf.bayesify(net, bf.MCDropout(drop_prob=0.5), num_data=10)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    outputs = [compiled(torch.ones(3, 2)) for _ in range(20)]
    assert all(y.isfinite().all() for y in outputs) and not torch.equal(outputs[0], outputs[1])


def test_all_layers_of_a_resnetpp_but_the_first_are_dropped() -> None:
    model = bf.bayesify(resnetpp_cifar(20, 10, width=4), bf.MCDropout())
    assert len(model.selection.random) == 21  # 18 convolutions of blocks, 2 shortcuts, head
