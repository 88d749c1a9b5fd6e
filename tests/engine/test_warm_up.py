"""Which weights are multiplied by the data themselves."""

import torch
from torch import nn

import bayesify as bf
from bayesify.engine.warm_up import centres, entrances


def found(net: nn.Module, x: torch.Tensor, length: int = 100) -> dict[str, int]:
    model = bf.bayesify(net, bf.ThermostatMCMC(), likelihood="normal", num_data=40)
    names = {p: name for name, p in model.net.named_parameters()}
    return {names[p]: dim for p, dim in entrances(model, length, (x, torch.zeros(len(x), 1))).items()}  # type: ignore[index]


def test_layers_that_see_the_data() -> None:
    """With the dimension of their inputs: of an embedding the words are."""
    linear = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))
    assert found(linear, torch.randn(4, 2, 3)) == {"1.weight": 1}
    assert found(nn.Linear(6, 1), torch.randn(4, 6)) == {"weight": 1}
    images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2, 1))
    assert found(images, torch.randn(4, 1, 3, 3)) == {"0.weight": 1}
    words = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(6, 1))
    assert found(words, torch.randint(5, (4, 3))) == {"0.weight": 0}
    assert found(nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 1)), torch.randn(4, 6)) == {}


def test_a_warm_start_that_may_not_see_all_examples_has_none() -> None:
    """Half of it must be two epochs: 20 steps of 4 examples of 40."""
    assert found(nn.Linear(6, 1), torch.randn(4, 6), length=39) == {}
    assert found(nn.Linear(6, 1), torch.randn(4, 6), length=40) == {"weight": 1}


def means(net: nn.Module, x: torch.Tensor) -> dict[str, list[float]]:
    model = bf.bayesify(net, bf.ThermostatMCMC(), likelihood="normal", num_data=40)
    names = {p: name for name, p in model.net.named_parameters()}
    found = centres(model, (x, torch.zeros(len(x), 1)))
    return {names[p] + " " + names[bias]: mean.flatten().tolist() for p, (bias, mean) in found.items()}  # type: ignore[index]


def test_the_mean_of_what_enters_a_layer() -> None:
    """Of each input that has one beyond its spread, as the layer gets it."""
    x = torch.tensor([[9.0, 0.0, -5.0], [11.0, 1.0, -5.0], [9.0, 0.0, -5.0], [11.0, -1.0, -5.0]])
    assert means(nn.Linear(3, 2), x) == {"weight bias": [10.0, 0.0, -5.0]}
    assert means(nn.Linear(3, 2), x[:3]) == {}  # too few examples
    assert means(nn.Linear(3, 2), x - x.mean(0)) == {}
    assert means(nn.Linear(3, 2, bias=False), x) == {}
    assert means(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)), x).keys() == {"0.weight 0.bias"}
    images = x[:, :2, None, None] + torch.zeros(4, 2, 3, 3)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(4, 1))
    assert means(net, images) == {"0.weight 0.bias": [10.0, 0.0]}
    grouped = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(4, 1))
    assert means(grouped, images) == {}
