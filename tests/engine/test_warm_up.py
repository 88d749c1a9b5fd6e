"""Which weights are multiplied by the data themselves."""

import torch
from torch import nn

import bayesify as bf
from bayesify.engine.warm_up import entrances


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
