"""Which weights are multiplied by the data themselves."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.engine.warm_up import entrances, moments
from bayesify.weights.observing.input_moments import input_moments


def found(net: nn.Module, x: torch.Tensor, length: int = 100) -> dict[str, int]:
    model = bf.bayesify(net, bf.ThermostatMCMC(), likelihood=bf.likelihood("normal", std=1.0), num_data=40)
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


def seen(net: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    model = bf.bayesify(net, bf.ThermostatMCMC(), likelihood=bf.likelihood("normal", std=1.0), num_data=40)
    names = {p: name for name, p in model.net.named_parameters()} | {None: "-"}
    found = moments(model, (x, torch.zeros(len(x), 1)))
    assert all(count == len(x) for _, _, count in found.values())
    return {f"{names[p]} {names[bias]}": square for p, (bias, square, _) in found.items()}  # type: ignore[index]


def test_the_second_moments_of_what_enters_a_layer() -> None:
    """With a 1 behind where there is a bias; of a convolution, against its output by kernels of one entry."""
    torch.manual_seed(0)
    x = 3 + torch.randn(8, 3)
    joined = torch.cat([x, torch.ones(8, 1)], 1)
    torch.testing.assert_close(seen(nn.Linear(3, 2), x), {"weight bias": joined.T @ joined / 8})
    torch.testing.assert_close(seen(nn.Linear(3, 2, bias=False), x), {"weight -": x.T @ x / 8})
    net = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Dropout(0.5), nn.Linear(2, 1, bias=False))
    assert seen(net, x).keys() == {"0.weight 0.bias"}
    assert all(module.training for module in net)
    for layer in (
        nn.Conv2d(3, 12, 2, padding=1, stride=(1, 2), bias=False),
        nn.Conv1d(3, 6, 2, dilation=2, bias=False),
        nn.Conv2d(3, 27, 3, padding="same", bias=False),
    ):
        images = torch.randn(8, 3, *[5] * (layer.weight.dim() - 2))
        size = layer.weight[0].numel()
        layer.weight.data = torch.eye(size).view(size, *layer.weight.shape[1:])
        rows = layer(images).movedim(1, -1).flatten(0, -2).detach()
        found = seen(nn.Sequential(layer, nn.Flatten()), images)
        torch.testing.assert_close(found, {"0.weight -": rows.T @ rows / len(rows)})


def test_layers_of_many_inputs_have_none() -> None:
    """More than 257, unless there are a quarter as many rows; groups; what is too small to have axes."""
    assert seen(nn.Linear(300, 2), torch.randn(8, 300)) == {}
    assert seen(nn.Linear(300, 2), torch.randn(100, 300)).keys() == {"weight bias"}
    assert seen(nn.Linear(1, 2, bias=False), torch.randn(8, 1)) == {}
    grouped = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(4, 1))
    assert seen(grouped, torch.randn(4, 2, 3, 3)) == {}


class Wider(nn.Linear):
    """Of (x, x²)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.cat([x, x.square()], -1))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_layers_in_a_way_of_their_own_are_left_out() -> None:
    """And leave no trace: of their weights, of random numbers."""
    encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    mask = torch.tensor([[False, False, True]]).expand(2, 3)
    net = nn.TransformerEncoder(encoder, 1).eval()
    assert input_moments(net, (torch.randn(2, 3, 4),), {"src_key_padding_mask": mask}) == {}
    assert seen(nn.Sequential(Wider(6, 1)), torch.randn(4, 3)) == {}
    assert seen(nn.Conv1d(2, 2, 5, padding="same"), torch.randn(4, 2, 3)).keys() == {"weight bias"}
    normed = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    before = {name: value.clone() for name, value in normed.state_dict().items()}
    input_moments(normed, (torch.randn(4, 3),), {})
    torch.testing.assert_close(dict(normed.state_dict()), before, rtol=0, atol=0)


def test_reduced_precision_does_not_reach_the_moments() -> None:
    x = 10 + 0.1 * torch.randn(64, 3)
    net = nn.Linear(3, 1, bias=False)
    with torch.autocast("cpu"):
        found = input_moments(net, (x,), {})[net.weight][1]
    torch.testing.assert_close(found, x.T @ x / 64)


@pytest.mark.parametrize("precision", ["bf16-true", "64-true"])
def test_its_looks_follow_the_precision(precision: str) -> None:
    """Inputs of float32 before weights of another precision."""
    x = torch.randn(40, 3)
    model = bf.bayesify(nn.Linear(3, 1), bf.ThermostatMCMC(num_kept=2), bf.likelihood("normal", std=1.0))
    batches = DataLoader(TensorDataset(x, x[:, :1]), batch_size=10)
    history = bf.fit(model, batches, epochs=20, precision=precision, progress=False)
    assert any("heated" in note for note in history.notes) and model.posterior.num_draws == 2
